package web

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// page is the file of the app's only page.
const page = "app/index.html"

// Preview describes a page to programs that show links to it: messengers, search engines, other networks.
type Preview struct {
	// Kind is the og:type: website, article or profile.
	Kind string
	// Title and Description are plain text.
	Title, Description string
	// Path is the canonical path of the page.
	Path string
	// Image is the URL of a picture. Defaults to a picture of the product.
	Image string
}

// product describes the pages that show nobody in particular.
var product = Preview{Kind: "website", Title: "Tideline", Description: "A timeline that keeps your place: posts arrive the moment they are written, and nothing moves while you read."}

// described matches the addresses that Options.Preview describes.
var described = regexp.MustCompile(`^/(@[^/]+|post/[^/]+)$`)

// servePage answers with the app. If the page has a preview, it is in the head of the document.
func (o Options) servePage(w http.ResponseWriter, r *http.Request) {
	preview := product
	switch preview.Path = r.URL.Path; {
	case o.Preview == nil:
		serve(w, r, page)
		return
	case described.MatchString(r.URL.Path):
		p, found, err := o.Preview(r)
		if err != nil {
			serve(w, r, page) // the app says what is wrong
			return
		}
		if preview = p; !found {
			writePage(w, r, http.StatusNotFound, "")
			return
		}
	case preview.Path != "/" && preview.Path != "/public":
		serve(w, r, page)
		return
	}
	writePage(w, r, http.StatusOK, preview.tags(origin(r)))
}

// emptyTitle is where the tags of a preview are inserted. They replace it.
const emptyTitle = "<title>Tideline</title>"

// document returns the content of the page.
var document = sync.OnceValue(func() string {
	text, err := unpacked(page)
	if err == nil && !strings.Contains(string(text), emptyTitle) {
		err = errors.New("it has no " + emptyTitle)
	}
	if err != nil {
		panic(fmt.Errorf("the app's page was not built: %w", err))
	}
	return string(text)
})

// writePage answers with the app, with the tags in its head. The answer has no ETag, so clients read it anew each time.
func writePage(w http.ResponseWriter, r *http.Request, status int, tags string) {
	body := document()
	if tags != "" {
		body = strings.Replace(body, emptyTitle, tags, 1)
	}
	h := w.Header()
	h.Set("Content-Type", contentTypes[".html"])
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // an error means that the client has left
	}
}

// tags returns the preview as HTML. origin is the server's origin; if it is empty, the HTML has no addresses.
func (p Preview) tags(origin string) string {
	title := p.Title
	if title != product.Title {
		title += " · " + product.Title
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<title>%s</title>", html.EscapeString(title))
	tag := func(format, value string) { fmt.Fprintf(&b, "\n    "+format, html.EscapeString(value)) }
	tag(`<meta name="description" content="%s">`, p.Description)
	tag(`<meta property="og:site_name" content="%s">`, product.Title)
	tag(`<meta property="og:type" content="%s">`, p.Kind)
	tag(`<meta property="og:title" content="%s">`, p.Title)
	tag(`<meta property="og:description" content="%s">`, p.Description)
	card := "summary"
	if p.Image == "" && origin != "" {
		p.Image, card = origin+"/preview.png", "summary_large_image"
	}
	if p.Image != "" {
		tag(`<meta property="og:image" content="%s">`, p.Image)
	}
	if origin != "" {
		tag(`<meta property="og:url" content="%s">`, origin+p.Path)
		tag(`<link rel="canonical" href="%s">`, origin+p.Path)
	}
	tag(`<meta name="twitter:card" content="%s">`, card)
	return b.String()
}

// hosts matches a host with or without a port.
var hosts = regexp.MustCompile(`^([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$`)

// origin returns the origin at which the client reached the server, or "" if its Host is not one. It goes back to this
// client only, so a client that invents a host deceives nobody else.
func origin(r *http.Request) string {
	if !hosts.MatchString(r.Host) {
		return ""
	}
	if r.TLS != nil || r.URL.Scheme == "https" {
		return "https://" + strings.ToLower(r.Host)
	}
	return "http://" + strings.ToLower(r.Host)
}
