package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// get requests an address from h as a browser does. With encoding "" it sends no Accept-Encoding.
func get(t *testing.T, h http.Handler, method, address, encoding string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, address, nil)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// linked returns the addresses of the files that a page loads.
func linked(t *testing.T, h http.Handler, page string) []string {
	t.Helper()
	var addresses []string
	body := get(t, h, "GET", page, "").Body.String()
	for _, match := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(body, -1) {
		addresses = append(addresses, match[1])
	}
	require.NotEmpty(t, addresses)
	return addresses
}

func TestPagesAreAskedForAnew(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	for _, page := range []string{
		"/", "/people", "/public", "/search", "/login", "/settings", "/settings/profile", "/settings/account", "/settings/likes", "/settings/conversations", "/moderation", "/moderation/log", "/@ada", "/@ada/followers", "/@ada/following", "/post/UG9zdDox", "/tag/tide", "/tag/%E6%BD%AE", "/graphiql", "/graphiql/",
	} {
		w := get(t, h, "GET", page, "gzip")
		assert.Equal(t, http.StatusOK, w.Code, page)
		assert.Equal(t, "no-cache", w.Header().Get("Cache-Control"), page)
		assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), page)
	}
}

func TestAssetsAreKeptForAYear(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	for _, page := range []string{"/", "/graphiql"} {
		for _, asset := range linked(t, h, page) {
			w := get(t, h, "GET", asset, "gzip")
			assert.Equal(t, http.StatusOK, w.Code, asset)
			if strings.Contains(asset, "/assets/") {
				assert.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"), asset)
			}
		}
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	for _, address := range append(linked(t, h, "/"), "/", "/@ada", "/no/such/page") {
		header := get(t, h, "GET", address, "gzip").Header()
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), address)
		assert.Equal(t, "same-origin", header.Get("Referrer-Policy"), address)
		policy := header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'; script-src 'self';", address)
		assert.NotContains(t, policy, "unsafe", address)
		assert.NotContains(t, policy, "blob:", address)
	}
	for _, address := range append(linked(t, h, "/graphiql"), "/graphiql") {
		policy := get(t, h, "GET", address, "gzip").Header().Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline';", address)
	}
}

// The app shows pictures only from the hosts that an operator names.
func TestImageHosts(t *testing.T) {
	policy := func(hosts ...string) string {
		return get(t, Handler(Options{GraphiQL: true, ImageHosts: hosts}), "GET", "/", "gzip").Header().Get("Content-Security-Policy")
	}
	assert.Contains(t, policy(), "img-src 'self'; ")
	assert.Contains(t, policy("img.example.org", "*.cdn.example"), "img-src 'self' img.example.org *.cdn.example; ")
	assert.Contains(t, policy("*"), "img-src 'self' *; ")
}

// Only Admin serves the admin page, and it serves no other page.
func TestAdminPage(t *testing.T) {
	h := Admin()
	for _, address := range append(linked(t, h, "/"), "/", "/no/such/page") {
		header := get(t, h, "GET", address, "gzip").Header()
		assert.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), address)
		assert.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';", address)
		assert.NotContains(t, header.Get("Content-Security-Policy"), "unsafe", address)
	}
	for _, address := range linked(t, h, "/") {
		assert.Regexp(t, `^/assets/`, address)
		assert.Equal(t, http.StatusOK, get(t, h, "GET", address, "gzip").Code, address)
		assert.Equal(t, http.StatusOK, get(t, h, "GET", address, "").Code, address)
	}
	assert.NotRegexp(t, `<script[^>]*>[^<]|<style| on\w+=`, get(t, h, "GET", "/", "").Body.String())
	for _, address := range []string{"/graphiql", "/people", "/../app/index.html", "/assets/../../app/index.html", "/assets", "/index.html.gz"} {
		assert.Equal(t, http.StatusNotFound, get(t, h, "GET", address, "gzip").Code, address)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, get(t, h, "POST", "/", "").Code)
	public := Handler(Options{GraphiQL: true})
	for _, address := range []string{"/admin", "/admin/", "/admin/index.html", "/../admin/index.html"} {
		assert.Equal(t, http.StatusNotFound, get(t, public, "GET", address, "gzip").Code, address)
	}
}

func TestPagesLoadNothingFromElsewhereAndHoldNoScript(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	for _, page := range []string{"/", "/graphiql"} {
		for _, address := range linked(t, h, page) {
			assert.Regexp(t, `^/((graphiql/)?assets/|apple-touch-icon\.png$|manifest\.webmanifest$)`, address)
		}
		assert.NotRegexp(t, `<script[^>]*>[^<]|<style| on\w+=`, get(t, h, "GET", page, "").Body.String())
	}
}

func TestEncodings(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	tests := []struct {
		accept string
		gzip   bool
	}{
		{"gzip, deflate, br", true},
		{"br, GZIP;q=0.5", true},
		{"*", true},
		{"*;q=0, gzip", true},
		{"", false},
		{"identity", false},
		{"br", false},
		{"gzip;q=0", false},
		{"gzip; q=0.0, *", false},
		{"gzip;q=x", false},
		{"x-gzippy", false},
	}
	for _, address := range append(linked(t, h, "/"), "/", "/graphiql") {
		packed := get(t, h, "GET", address, "gzip").Body.Bytes()
		reader, err := gzip.NewReader(bytes.NewReader(packed))
		require.NoError(t, err, address)
		plain, err := io.ReadAll(reader)
		require.NoError(t, err, address)
		for _, test := range tests {
			w := get(t, h, "GET", address, test.accept)
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Equal(t, "Accept-Encoding", w.Header().Get("Vary"))
			if test.gzip {
				assert.Equal(t, "gzip", w.Header().Get("Content-Encoding"), test.accept)
				assert.Equal(t, packed, w.Body.Bytes(), test.accept)
			} else {
				assert.Empty(t, w.Header().Get("Content-Encoding"), test.accept)
				assert.Equal(t, plain, w.Body.Bytes(), test.accept)
			}
		}
	}
}

// A client that already has a file gets 304. A client that has a part gets the rest while the ETag is the same.
func TestFilesHaveAnETag(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	ask := func(address string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, address, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	seen := map[string]string{}
	for _, address := range append(linked(t, h, "/"), "/", "/graphiql", "/licenses.md") {
		full := ask(address)
		tag := full.Header().Get("ETag")
		require.Regexp(t, `^"[0-9a-f]{32}"$`, tag, address)
		assert.Empty(t, seen[tag], "%s has the tag of another file", address)
		seen[tag] = address

		held := ask(address, "If-None-Match", `"another", `+tag)
		assert.Equal(t, http.StatusNotModified, held.Code, address)
		assert.Empty(t, held.Body.Bytes(), address)
		for _, name := range []string{"ETag", "Cache-Control", "Vary"} {
			assert.Equal(t, full.Header().Get(name), held.Header().Get(name), address)
		}
		assert.Equal(t, http.StatusOK, ask(address, "If-None-Match", `"another"`).Code, address)

		part := ask(address, "Range", "bytes=5-9", "If-Range", tag)
		assert.Equal(t, http.StatusPartialContent, part.Code, address)
		assert.Equal(t, full.Body.Bytes()[5:10], part.Body.Bytes(), address)
		assert.Equal(t, "5", part.Header().Get("Content-Length"), address)
		assert.Equal(t, http.StatusOK, ask(address, "Range", "bytes=5-9", "If-Range", `"another"`).Code, address)
	}
	assert.Equal(t, ask("/").Header().Get("ETag"), ask("/@ada").Header().Get("ETag"), "the app has one page")
	assert.Empty(t, get(t, h, "GET", "/", "").Header().Get("ETag"), "the plain form is other bytes")
}

func TestUnknownAddresses(t *testing.T) {
	h := Handler(Options{GraphiQL: true})
	for _, address := range []string{
		"/assets", "/assets/", "/assets/index-00000000.js", "/graphiql/assets/none.js", "/app/index.html",
		"/graphiqlx", "/@", "/@ada/posts", "/@ada/followers/", "/@/followers", "/post", "/post/", "/post/1/2", "/tag", "/tag/", "/tag/a/b", "/settings.php", "/settings/", "/settings/other", "/settings/account/1", "/moderation/", "/moderation/open", "/login/", "/search/", "/%2e%2e/web.go", "/assets/../../web.go", "//host/", "/index.html", "/index.html.gz", "/robots.txt/", "/public/",
	} {
		w := get(t, h, "GET", address, "gzip")
		assert.Equal(t, http.StatusNotFound, w.Code, address)
		assert.NotContains(t, w.Header().Get("Cache-Control"), "max-age", address)
	}
}

func TestMethods(t *testing.T) {
	h := Handler(Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		w := get(t, h, method, "/", "gzip")
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
	}
	for _, encoding := range []string{"gzip", ""} {
		head, full := get(t, h, "HEAD", "/", encoding), get(t, h, "GET", "/", encoding)
		assert.Equal(t, http.StatusOK, head.Code)
		assert.Empty(t, head.Body.Bytes())
		assert.Equal(t, full.Header(), head.Header())
	}
}

func TestGraphiQLCanBeLeftOut(t *testing.T) {
	assets := linked(t, Handler(Options{GraphiQL: true}), "/graphiql")
	h := Handler(Options{})
	for _, address := range append(assets, "/graphiql", "/graphiql/", "/graphiql/index.html") {
		assert.Equal(t, http.StatusNotFound, get(t, h, "GET", address, "gzip").Code, address)
	}
	assert.Equal(t, http.StatusOK, get(t, h, "GET", "/", "gzip").Code)
}

func TestEveryBuiltFileIsCompressedAndOfAKnownType(t *testing.T) {
	require.NoError(t, fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, compressed := strings.CutSuffix(name, ".gz")
		assert.True(t, compressed, name)
		assert.Contains(t, contentTypes, path.Ext(plain), name)
		return nil
	}))
}

// A server that executes only trusted documents compares them by hash.
func TestDocumentsHaveTheirHash(t *testing.T) {
	require.Greater(t, len(Documents()), 30)
	for hash, text := range Documents() {
		sum := sha256.Sum256([]byte(text))
		require.Equal(t, hex.EncodeToString(sum[:]), hash, text)
	}
}

// The first visit waits for the files that the page names, so their size is bounded: 90 kB compressed. They do not
// include the pages for moderators.
func TestTheAppStaysSmall(t *testing.T) {
	h := Handler(Options{})
	size := get(t, h, "GET", "/", "gzip").Body.Len()
	for _, address := range linked(t, h, "/") {
		file := get(t, h, "GET", address, "gzip").Body
		size += file.Len()
		assert.NotContains(t, get(t, h, "GET", address, "").Body.String(), "ReportedConversation", address)
	}
	assert.LessOrEqual(t, size, 90_000)
	scripts, err := fs.Glob(dist, "dist/app/assets/*.js.gz")
	require.NoError(t, err)
	assert.Greater(t, len(scripts), 1)
}

// New developers run the ready-made tabs first, so the tabs must fit the current schema.
func TestGraphiQLTabsFitTheSchema(t *testing.T) {
	files, err := filepath.Glob("../graph/*.graphqls")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var sources []*ast.Source
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sources = append(sources, &ast.Source{Name: file, Input: string(text)})
	}
	schema, err := gqlparser.LoadSchema(sources...)
	require.NoError(t, err)

	tabs, err := filepath.Glob("graphiql/tabs/*.graphql")
	require.NoError(t, err)
	require.NotEmpty(t, tabs)
	for _, tab := range tabs {
		text, err := os.ReadFile(tab)
		require.NoError(t, err)
		_, errs := gqlparser.LoadQueryWithRules(schema, string(text), nil)
		assert.Empty(t, errs, tab)
	}
}

// sources returns the TypeScript sources of the app, by their path without the extension.
func sources(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("app", func(name string, entry fs.DirEntry, err error) error {
		if ext := path.Ext(name); err == nil && (ext == ".ts" || ext == ".tsx") && !strings.HasSuffix(name, ".d.ts") {
			var text []byte
			text, err = os.ReadFile(name)
			found[strings.TrimSuffix(filepath.ToSlash(name), ext)] = string(text)
		}
		return err
	}))
	return found
}

var imported = regexp.MustCompile(`(?m)^(?:import|export)( type)? [^']*from '(\.[^']+)'`)

// Modules do not import each other in a circle. Modules that draw nothing do not even for types.
func TestModulesImportInOneDirection(t *testing.T) {
	files := sources(t)
	require.Greater(t, len(files), 30)
	values, all := map[string][]string{}, map[string][]string{}
	for name, text := range files {
		for _, match := range imported.FindAllStringSubmatch(text, -1) {
			target := path.Join(path.Dir(name), match[2])
			if !strings.HasPrefix(target, "app/") || strings.HasSuffix(target, "/schema") {
				continue
			}
			require.Contains(t, files, target, name)
			all[name] = append(all[name], target)
			if match[1] == "" {
				values[name] = append(values[name], target)
			}
		}
	}
	require.Contains(t, values["app/post"], "app/compose")
	require.Contains(t, all["app/compose"], "app/timeline")
	require.NotContains(t, values["app/compose"], "app/timeline")
	refuseCircles(t, values, func(string) bool { return true })
	refuseCircles(t, all, func(name string) bool {
		_, err := os.Stat(name + ".ts")
		return err == nil
	})
}

// refuseCircles fails the test if the modules for which within is true import each other in a circle.
func refuseCircles(t *testing.T, imports map[string][]string, within func(name string) bool) {
	t.Helper()
	const entered, left = 1, 2
	state := map[string]int{}
	var follow func(name string, trail []string)
	follow = func(name string, trail []string) {
		trail = append(trail, name)
		if state[name] == entered {
			assert.Fail(t, "a circle of imports", strings.Join(trail, " -> "))
		}
		if state[name] != 0 || !within(name) {
			return
		}
		state[name] = entered
		for _, target := range imports[name] {
			follow(target, trail)
		}
		state[name] = left
	}
	for name := range imports {
		follow(name, nil)
	}
}

// The app has texts of its own for the reasons of refusals. The names must be the ones that the server sends.
func TestReasonsWithATextExist(t *testing.T) {
	documented, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	for _, language := range []string{"en", "zh"} {
		_, texts, _ := strings.Cut(sources(t)["app/texts/"+language], "const reasons")
		texts, _, _ = strings.Cut(texts, "\n}\n")
		names := regexp.MustCompile(`(?m)^  ([A-Z_]+):`).FindAllStringSubmatch(texts, -1)
		require.Greater(t, len(names), 20, language)
		for _, name := range names {
			assert.Contains(t, string(documented), "| `"+name[1]+"` |", language)
		}
	}
}
