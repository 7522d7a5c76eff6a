package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask requests an address from h under a host.
func ask(h http.Handler, method, host, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// posts is an Options.Preview with one post.
func posts(r *http.Request) (p Preview, found bool, err error) {
	switch r.URL.Path {
	case "/post/1":
		return Preview{Kind: "article", Title: `A "B"`, Description: `<i>'&'`, Path: "/post/1"}, true, nil
	case "/post/failing":
		return p, false, errors.New("unreachable")
	}
	return p, false, nil
}

func TestTagsOfAPreview(t *testing.T) {
	h := Handler(Options{Preview: posts})
	w := ask(h, "GET", "Feed.example.com:8443", "/post/1?q=1")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	assert.Empty(t, w.Header().Get("ETag"))
	assert.Contains(t, w.Body.String(), strings.Join([]string{
		`<title>A &#34;B&#34; · Tideline</title>`,
		`<meta name="description" content="&lt;i&gt;&#39;&amp;&#39;">`,
		`<meta property="og:site_name" content="Tideline">`,
		`<meta property="og:type" content="article">`,
		`<meta property="og:title" content="A &#34;B&#34;">`,
		`<meta property="og:description" content="&lt;i&gt;&#39;&amp;&#39;">`,
		`<meta property="og:image" content="http://feed.example.com:8443/preview.png">`,
		`<meta property="og:url" content="http://feed.example.com:8443/post/1">`,
		`<link rel="canonical" href="http://feed.example.com:8443/post/1">`,
		`<meta name="twitter:card" content="summary_large_image">`,
	}, "\n    "))
	head := ask(h, "HEAD", "feed.example.com:8443", "/post/1")
	assert.Empty(t, head.Body.Bytes())
	assert.Equal(t, w.Header(), head.Header())

	r := httptest.NewRequest(http.MethodGet, "https://[2001:db8::1]/post/1", nil)
	secure := httptest.NewRecorder()
	h.ServeHTTP(secure, r)
	assert.Contains(t, secure.Body.String(), `href="https://[2001:db8::1]/post/1"`)
	for _, address := range []string{"/", "/public"} {
		assert.Contains(t, ask(h, "GET", "feed.example.com", address).Body.String(), `<meta property="og:url" content="http://feed.example.com`+address+`">`)
	}
	for _, address := range []string{"/settings", "/people", "/tag/tide", "/@ada/followers", "/post/1/quotes", "/post/failing"} {
		w := ask(h, "GET", "feed.example.com", address)
		assert.Equal(t, http.StatusOK, w.Code, address)
		assert.NotContains(t, w.Body.String(), "og:", address)
	}
}

// A host that is none is in no address of the page.
func TestAHostIsNotBelieved(t *testing.T) {
	h := Handler(Options{Preview: posts})
	for _, host := range []string{"", `a"><script>`, "a b", "user@host", "host/path", "host:port", "host:123456", "[::1", "höst"} {
		body := ask(h, "GET", host, "/post/1").Body.String()
		assert.Contains(t, body, "og:title", host)
		for _, part := range []string{"canonical", "og:url", "og:image", "://", "<script>"} {
			assert.NotContains(t, body, part, host)
		}
	}
}

// An address at which there is nothing, or nothing that the visitor may see, is answered with the app and 404.
func TestTheAppSaysThatThereIsNothing(t *testing.T) {
	h := Handler(Options{Preview: posts, GraphiQL: true})
	page := get(t, h, "GET", "/settings", "").Body.String()
	for _, address := range []string{"/post/2", "/@nobody", "/no/such/page", "/index.html"} {
		w := ask(h, "GET", "feed.example.com", address)
		assert.Equal(t, http.StatusNotFound, w.Code, address)
		assert.Equal(t, page, w.Body.String(), address)
		assert.Equal(t, ask(h, "GET", "feed.example.com", "/post/3").Header(), w.Header(), address)
		assert.Empty(t, ask(h, "HEAD", "feed.example.com", address).Body.Bytes(), address)
	}
	for _, o := range []Options{{NoApp: true}, {NoApp: true, Preview: posts}} {
		for _, address := range []string{"/", "/post/1", "/no/such/page", "/robots.txt"} {
			w := ask(Handler(o), "GET", "feed.example.com", address)
			assert.Equal(t, http.StatusNotFound, w.Code, address)
			assert.NotContains(t, w.Body.String(), "<html", address)
		}
	}
}

// Browsers and other programs find these files at fixed addresses.
func TestFilesAtFixedAddresses(t *testing.T) {
	h := Handler(Options{})
	const day, anew = "public, max-age=86400", "no-cache"
	for address, want := range map[string]struct {
		kind, cache   string
		width, height int
	}{
		"/robots.txt":           {"text/plain; charset=utf-8", anew, 0, 0},
		"/manifest.webmanifest": {"application/manifest+json", anew, 0, 0},
		"/favicon.ico":          {"image/x-icon", day, 0, 0},
		"/apple-touch-icon.png": {"image/png", day, 180, 180},
		"/icon-192.png":         {"image/png", day, 192, 192},
		"/icon-512.png":         {"image/png", day, 512, 512},
		"/preview.png":          {"image/png", day, 1200, 630},
	} {
		plain, packed := get(t, h, "GET", address, ""), get(t, h, "GET", address, "gzip")
		assert.Equal(t, http.StatusOK, plain.Code, address)
		assert.Equal(t, want.kind, plain.Header().Get("Content-Type"), address)
		assert.Equal(t, want.cache, plain.Header().Get("Cache-Control"), address)
		assert.Less(t, plain.Body.Len(), 64<<10, address)
		text, err := gzip.NewReader(packed.Body)
		require.NoError(t, err, address)
		unpacked, err := io.ReadAll(text)
		require.NoError(t, err, address)
		assert.Equal(t, plain.Body.Bytes(), unpacked, address)
		if want.width > 0 {
			picture, err := png.DecodeConfig(bytes.NewReader(unpacked))
			require.NoError(t, err, address)
			assert.Equal(t, []int{want.width, want.height}, []int{picture.Width, picture.Height}, address)
		}
	}
	var manifest struct {
		StartURL string `json:"start_url"`
		Icons    []struct{ Src, Sizes string }
	}
	require.NoError(t, json.Unmarshal(get(t, h, "GET", "/manifest.webmanifest", "").Body.Bytes(), &manifest))
	assert.Equal(t, "/", manifest.StartURL)
	require.NotEmpty(t, manifest.Icons)
	for _, icon := range manifest.Icons {
		assert.Equal(t, "/icon-"+strings.Split(icon.Sizes, "x")[0]+".png", icon.Src)
		assert.Equal(t, http.StatusOK, get(t, h, "GET", icon.Src, "").Code)
	}
	robots := get(t, h, "GET", "/robots.txt", "").Body.String()
	assert.Contains(t, robots, "\nDisallow: /graphql\n")
	for _, public := range []string{"/post", "/@", "/public", "/tag", "/assets", "/\n"} {
		assert.NotContains(t, robots, "Disallow: "+public)
	}
	assert.Contains(t, get(t, h, "GET", "/", "").Header().Get("Content-Security-Policy"), "manifest-src 'self';")
}
