// Package web serves the pages that a browser opens: the single-page app at /, GraphiQL at /graphiql, the admin page at
// an address of its own.
//
// The package hides how the pages are built, stored and protected. Their sources are the TypeScript in app, graphiql and
// admin. `npm ci && npm run build` compiles them into dist, with the same bytes on every run. dist is committed and
// embedded, so that Go alone builds the product. It holds only the gzip form of each file. Handlers send that form, and
// decompress it for the rare client that does not accept gzip.
//
// # Invariants
//
//   - A page holds no inline script and loads nothing from another host, except the pictures that Options allows. Its
//     Content-Security-Policy enforces this.
//   - The name of a file under assets contains a hash of its content, so the file never changes.
//
// The package does not serve the API. The app and GraphiQL expect it at /graphql of their own origin, over HTTP and
// WebSocket. The admin page expects server/admin below /api/.
package web

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The prefix all: includes files whose names begin with _ or a dot. The bundler chooses the names.
//
//go:embed all:dist
var dist embed.FS

// A policy lists everything that a page may do. Anything else is forbidden.
const (
	appPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src %s; connect-src 'self'; manifest-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	// GraphiQL's editor runs workers, inserts style elements, and brings fonts and images inside its style sheet.
	graphiqlPolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; " +
		"font-src 'self' data:; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// contentTypes maps each file extension in dist to a content type. The table of the operating system is not reliable.
var contentTypes = map[string]string{
	".css":         "text/css; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".ico":         "image/x-icon",
	".js":          "text/javascript; charset=utf-8",
	".json":        "application/json",
	".md":          "text/plain; charset=utf-8",
	".png":         "image/png",
	".svg":         "image/svg+xml",
	".ttf":         "font/ttf",
	".txt":         "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json",
}

// Documents returns every GraphQL document that the app sends. The keys are the SHA-256 hashes of the documents, in
// lower-case hexadecimal. Handler serves the same map at /documents.json.
var Documents = sync.OnceValue(func() (documents map[string]string) {
	text, err := unpacked("app/documents.json")
	if err == nil {
		err = json.Unmarshal(text, &documents)
	}
	if err != nil {
		panic(fmt.Errorf("the app's documents were not built: %w", err))
	}
	return documents
})

// unpacked returns the content of a file of dist.
func unpacked(file string) ([]byte, error) {
	f, err := dist.Open("dist/" + file + ".gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(text)
}

// Options says which pages to serve.
type Options struct {
	// NoApp makes the addresses of the app answer 404. Defaults to false.
	NoApp bool
	// GraphiQL serves GraphiQL, the API's explorer, at /graphiql. Without it these addresses answer 404.
	// Defaults to false.
	GraphiQL bool
	// ImageHosts are the hosts from which the app may show pictures, in the syntax of a
	// Content-Security-Policy. Defaults to none.
	ImageHosts []string
	// Preview describes the post or profile at the address of a request, /post/ID or /@handle, as a visitor who is
	// not signed in sees it at this moment. found is false if there is none that the visitor may see. An error means
	// that it could not be read. Defaults to no descriptions.
	Preview func(r *http.Request) (p Preview, found bool, err error)
}

// Handler serves the app and, if Options says so, GraphiQL. Mount it at the root, beside /graphql.
//
// Clients may cache assets for a year and icons for a day, and must revalidate everything else each time. The answer is
// 405 for a method other than GET and HEAD. It is 404 for an address that is neither a page nor a file, with the app as its
// body, which says so. A post or profile that Options.Preview does not find has the same answer: the handler does not know
// who asks, and the app shows it to those who may see it.
func Handler(o Options) http.Handler {
	return reading(policyFor(o.ImageHosts), func(w http.ResponseWriter, r *http.Request) {
		file, ok := locate(r.URL.Path)
		switch {
		case strings.HasPrefix(file, "graphiql/"):
			w.Header().Set("Content-Security-Policy", graphiqlPolicy)
			if ok && o.GraphiQL {
				serve(w, r, file)
			} else {
				http.NotFound(w, r)
			}
		case o.NoApp:
			http.NotFound(w, r)
		case isPage(r.URL.Path):
			o.servePage(w, r)
		case ok && file != page && exists(file):
			serve(w, r, file)
		default:
			writePage(w, r, http.StatusNotFound, "")
		}
	})
}

// Admin serves the admin page, with the same caching and errors as Handler. Mount it at the root of an address that is
// not public.
func Admin() http.Handler {
	return reading(policyFor(nil), func(w http.ResponseWriter, r *http.Request) {
		file := "admin" + r.URL.Path
		if r.URL.Path == "/" {
			file += "index.html"
		}
		if !fs.ValidPath(file) {
			http.NotFound(w, r)
			return
		}
		serve(w, r, file)
	})
}

// policyFor returns appPolicy with the hosts from which a page may show pictures.
func policyFor(imageHosts []string) string {
	return fmt.Sprintf(appPolicy, strings.Join(append([]string{"'self'"}, imageHosts...), " "))
}

// reading wraps next: it sets the security headers, and refuses methods other than GET and HEAD.
func reading(policy string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Content-Security-Policy", policy)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

// locate returns the file for an address, relative to dist. It returns false if the address is not a valid path.
func locate(address string) (file string, ok bool) {
	switch {
	case isPage(address):
		file = page
	case address == "/graphiql" || address == "/graphiql/":
		file = "graphiql/index.html"
	case strings.HasPrefix(address, "/graphiql/"):
		file = address[1:]
	default:
		file = "app" + address
	}
	return file, fs.ValidPath(file)
}

// pages matches the addresses at which the app draws a view.
var pages = regexp.MustCompile(`^/(people|public|search|login|settings(/(profile|account|sessions|words|muted|conversations|blocked|requests|likes))?|moderation(/(upheld|dismissed|suspended|roles|log))?|@[^/]+(/followers|/following)?|post/[^/]+(/reposts|/quotes)?|tag/[^/]+)?$`)

func isPage(address string) bool { return pages.MatchString(address) }

func exists(file string) bool {
	_, err := fs.Stat(dist, "dist/"+file+".gz")
	return err == nil
}

// serve answers with a file of dist. Only the compressed form, which nearly every client gets, has an ETag and supports
// range requests.
func serve(w http.ResponseWriter, r *http.Request, file string) {
	f, err := dist.Open("dist/" + file + ".gz")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()

	h := w.Header()
	h.Set("Content-Type", contentTypes[path.Ext(file)])
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	switch ext := path.Ext(file); {
	case path.Base(path.Dir(file)) == "assets":
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	case ext == ".png" || ext == ".ico":
		h.Set("Cache-Control", "public, max-age=86400")
	}

	if packed, ok := f.(io.ReadSeeker); ok && acceptsGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", tags()[file])
		if info, err := f.Stat(); err == nil {
			h.Set("Content-Length", strconv.FormatInt(info.Size(), 10))
		}
		http.ServeContent(w, r, "", time.Time{}, packed)
		return
	}
	body, err := gzip.NewReader(f)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	// A failure here means that the client has left, so nobody can get the error.
	_, _ = io.Copy(w, body)
}

// tags returns the strong ETag of the compressed form of each file.
//
// Cost: the first call hashes 2.3 MB, in a few milliseconds.
var tags = sync.OnceValue(func() map[string]string {
	tags := map[string]string{}
	_ = fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error { // in memory: cannot fail
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		sum := sha256.Sum256(content)
		tags[strings.TrimSuffix(strings.TrimPrefix(name, "dist/"), ".gz")] = `"` + hex.EncodeToString(sum[:16]) + `"`
		return err
	})
	return tags
})

// acceptsGzip reports whether the Accept-Encoding fields of a request accept gzip. Without a field it reports false,
// because clients that send none do not decompress.
func acceptsGzip(fields []string) bool {
	accepts := false
	for coding := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		q, hasWeight := strings.CutPrefix(strings.ToLower(strings.TrimSpace(weight)), "q=")
		value, err := strconv.ParseFloat(q, 64)
		wanted := !hasWeight || err == nil && value > 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip":
			return wanted
		case "*":
			accepts = wanted
		}
	}
	return accepts
}
