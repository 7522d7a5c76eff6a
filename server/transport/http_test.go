package transport

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
	"tideline/server/transport/incoming"
)

const (
	asSpec = "application/graphql-response+json"
	asJSON = servertest.AsJSON
)

func TestHTTP(t *testing.T) {
	post := func(body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
		r.Header.Set("Content-Type", asJSON)
		return r
	}
	get := func(query string, more ...string) *http.Request {
		values := url.Values{"query": {query}}
		for i := 0; i < len(more); i += 2 {
			values.Add(more[i], more[i+1])
		}
		return httptest.NewRequest(http.MethodGet, "/graphql?"+values.Encode(), nil)
	}
	with := func(r *http.Request, name, value string) *http.Request {
		r.Header.Set(name, value)
		return r
	}
	const hello = `{"query":"{hello}"}`
	for name, c := range map[string]struct {
		request *http.Request
		strict  int    // status with application/graphql-response+json
		loose   int    // status with application/json, if it differs
		want    string // part of the body
	}{
		"query":             {request: post(hello), strict: 200, want: `{"data":{"hello":"world"}}`},
		"query by GET":      {request: get("{hello}"), strict: 200, want: `{"data":{"hello":"world"}}`},
		"variables":         {request: post(`{"query":"query($n:Int){echo(n:$n)}","variables":{"n":4}}`), strict: 200, want: `{"echo":4}`},
		"variables by GET":  {request: get("query($n:Int){echo(n:$n)}", "variables", `{"n":4}`), strict: 200, want: `{"echo":4}`},
		"operation by GET":  {request: get("query a{a:hello} query b{b:hello}", "operationName", "b"), strict: 200, want: `{"b":"world"}`},
		"nulls":             {request: post(`{"query":"{hello}","variables":null,"operationName":null,"extensions":null}`), strict: 200, want: "world"},
		"unknown parameter": {request: post(`{"query":"{hello}","more":1}`), strict: 200, want: "world"},
		"charset":           {request: with(post(hello), "Content-Type", "application/json; charset=UTF-8"), strict: 200, want: "world"},
		"mutation":          {request: post(`{"query":"mutation{set(n:1)}"}`), strict: 200, want: `{"set":1}`},
		"field error":       {request: post(`{"query":"{fail hello}"}`), strict: 200, want: `"fail":null`},
		"panic":             {request: post(`{"query":"{panics}"}`), strict: 200, want: "INTERNAL"},
		"signed in":         {request: with(post(hello), "Authorization", "bearer alice"), strict: 200, want: "world"},
		"unparsable":        {request: post(`{"query":"{"}`), strict: 400, loose: 200, want: "GRAPHQL_PARSE_FAILED"},
		"invalid":           {request: post(`{"query":"{nothing}"}`), strict: 400, loose: 200, want: "GRAPHQL_VALIDATION_FAILED"},
		"variable of wrong type": {
			request: post(`{"query":"query($n:Int){echo(n:$n)}","variables":{"n":"x"}}`), strict: 400, loose: 200, want: "BAD_USER_INPUT",
		},
		"persisted query":        {request: post(`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"0"}}}`), strict: 400, loose: 200, want: "PERSISTED_QUERY_NOT_SUPPORTED"},
		"unknown token":          {request: with(post(hello), "Authorization", "Bearer mallory"), strict: 401, want: `"reason":"SESSION_ENDED"`},
		"not a bearer token":     {request: with(post(hello), "Authorization", "Basic YTpi"), strict: 401, want: `"reason":"SESSION_ENDED"`},
		"no session store":       {request: with(post(hello), "Authorization", "Bearer database-down"), strict: 500, loose: 200, want: "INTERNAL"},
		"mutation by GET":        {request: get("mutation{set(n:1)}"), strict: 405, want: "Use POST"},
		"subscription":           {request: post(`{"query":"subscription{news}"}`), strict: 400, want: "graphql-transport-ws"},
		"subscription by GET":    {request: get("subscription{news}"), strict: 400, want: "graphql-transport-ws"},
		"PUT":                    {request: httptest.NewRequest(http.MethodPut, "/graphql", nil), strict: 405, want: "BAD_USER_INPUT"},
		"no query":               {request: post(`{}`), strict: 400, want: "query"},
		"no query by GET":        {request: httptest.NewRequest(http.MethodGet, "/graphql", nil), strict: 400, want: "query"},
		"query twice by GET":     {request: get("{hello}", "query", "{fail}"), strict: 400, want: "more than once"},
		"bad variables by GET":   {request: get("{hello}", "variables", "{"), strict: 400, want: "variables"},
		"query is a number":      {request: post(`{"query":1}`), strict: 400, want: "query"},
		"query in capitals":      {request: post(`{"QUERY":"{hello}"}`), strict: 400, want: "query"},
		"variables are a list":   {request: post(`{"query":"{hello}","variables":[]}`), strict: 400, want: "variables"},
		"extensions are a text":  {request: post(`{"query":"{hello}","extensions":""}`), strict: 400, want: "extensions"},
		"name is a number":       {request: post(`{"query":"{hello}","operationName":1}`), strict: 400, want: "operationName"},
		"batch":                  {request: post(`[` + hello + `]`), strict: 400, want: "one request at a time"},
		"empty body":             {request: post(``), strict: 400, want: "JSON"},
		"null":                   {request: post(`null`), strict: 400, want: "null"},
		"bytes after the object": {request: post(hello + `{}`), strict: 400, want: "JSON"},
		"not UTF-8":              {request: post("{\"query\":\"{hello} #\xff\"}"), strict: 400, want: "UTF-8"},
		"too large":              {request: post(`{"query":"` + strings.Repeat(" ", maxBody) + `"}`), strict: 413, want: "1048576 bytes"},
		"text":                   {request: with(post(hello), "Content-Type", "text/plain"), strict: 415, want: "application/json"},
		"form":                   {request: with(post(hello), "Content-Type", "application/x-www-form-urlencoded"), strict: 415, want: "application/json"},
		"multipart":              {request: with(post(hello), "Content-Type", "multipart/form-data; boundary=x"), strict: 415, want: "application/json"},
		"no content type":        {request: with(post(hello), "Content-Type", ""), strict: 415, want: "application/json"},
		"another charset":        {request: with(post(hello), "Content-Type", "application/json; charset=latin1"), strict: 415, want: "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := io.ReadAll(c.request.Body)
			require.NoError(t, err)
			f := newFixture(t, nil)
			for accept, status := range map[string]int{asSpec: c.strict, asJSON: c.loose} {
				if status == 0 {
					status = c.strict
				}
				r := c.request.Clone(t.Context())
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				IdentifyRequests(f.handler).ServeHTTP(w, r)
				require.Equal(t, status, w.Code, w.Body)
				require.Equal(t, accept+"; charset=utf-8", w.Header().Get("Content-Type"))
				require.Contains(t, w.Body.String(), c.want)
				require.NotContains(t, w.Body.String(), "secret")
				require.True(t, json.Valid(w.Body.Bytes()))
				cached := "no-store"
				if r.Method == http.MethodGet && w.Code == http.StatusOK && strings.Contains(c.want, "world") || c.want == `{"echo":4}` && r.Method == http.MethodGet {
					cached = "public, no-cache"
				}
				require.Equal(t, cached, w.Header().Get("Cache-Control"))
				if status >= 400 {
					require.NotContains(t, w.Body.String(), `"data"`)
				}
				if status == http.StatusMethodNotAllowed {
					require.NotEmpty(t, w.Header().Get("Allow"))
				}
				if status == http.StatusUnauthorized {
					require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
				}
			}
		})
	}
}

// A cache may keep only answers that are the same for everybody: no answer to a request with Authorization,
// no error, no answer to a POST. A request with Authorization never gets 304 for the shared answer.
func TestOnlyAnonymousAnswersAreShared(t *testing.T) {
	f := newFixture(t, nil)
	ask := func(method, query, held string, signed bool) *httptest.ResponseRecorder {
		address, body := "/graphql?query="+url.QueryEscape(query), ""
		if method == http.MethodPost {
			address, body = "/graphql", `{"query":"`+query+`"}`
		}
		r := httptest.NewRequest(method, address, strings.NewReader(body))
		r.Header.Set("Content-Type", asJSON)
		r.Header.Set("If-None-Match", held)
		if signed {
			r.Header.Set("Authorization", "Bearer alice")
		}
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, r)
		return w
	}
	shared := ask(http.MethodGet, "{hello}", "", false)
	tag := shared.Header().Get("ETag")
	require.Equal(t, http.StatusOK, shared.Code)
	require.NotEmpty(t, tag)
	require.Equal(t, "public, no-cache", shared.Header().Get("Cache-Control"))
	require.Subset(t, shared.Header().Values("Vary"), []string{"Accept", "Authorization", "Origin"})
	again := ask(http.MethodGet, "{hello}", tag, false)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Empty(t, again.Body.Bytes())
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "{a:hello}", tag, false).Code, "another answer")

	for name, w := range map[string]*httptest.ResponseRecorder{
		"signed in":   ask(http.MethodGet, "{hello}", tag, true),
		"posted":      ask(http.MethodPost, "{hello}", tag, false),
		"field error": ask(http.MethodGet, "{fail hello}", "*", false),
		"invalid":     ask(http.MethodGet, "{nothing}", "*", false),
		"mutation":    ask(http.MethodGet, "mutation{set(n:1)}", "*", false),
	} {
		require.NotEqual(t, http.StatusNotModified, w.Code, name)
		require.NotEmpty(t, w.Body.Bytes(), name)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), name)
		require.Empty(t, w.Header().Get("ETag"), name)
	}
}

func (f *fixture) post(body string, more ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", asJSON)
	for _, change := range more {
		change(r)
	}
	w := httptest.NewRecorder()
	IdentifyRequests(f.handler).ServeHTTP(w, r)
	return w
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"*/*":                                    asJSON,
		"application/*":                          asJSON,
		"application/json":                       asJSON,
		"application/json; charset=utf-8":        asJSON,
		asSpec:                                   asSpec,
		asSpec + ", application/json":            asSpec,
		"application/json, " + asSpec:            asSpec,
		"application/json, " + asSpec + ";q=0.9": asJSON,
		asSpec + ";q=0, application/json":        asJSON,
		"text/html, */*;q=0.8":                   asJSON,
		"text/html, ;;, " + asSpec:               asSpec,
		"text/html":                              "",
		"application/json;q=0":                   "",
		"application/json;q=x":                   "",
	} {
		got, ok := incoming.Negotiate([]string{accept})
		require.Equal(t, want, got, accept)
		require.Equal(t, want != "", ok, accept)
	}
	got, ok := incoming.Negotiate(nil)
	require.True(t, ok)
	require.Equal(t, asJSON, got)
	got, _ = incoming.Negotiate([]string{"text/html", asSpec})
	require.Equal(t, asSpec, got)
}

func TestNotAcceptable(t *testing.T) {
	f := newFixture(t, nil)
	r := httptest.NewRequest(http.MethodGet, "/graphql?query={hello}", nil)
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusNotAcceptable, w.Code)
}

func TestRequestID(t *testing.T) {
	f := newFixture(t, nil)
	for given, kept := range map[string]bool{
		"abc-1.2_3": true, "": false, "a b": false, "a\tb": false, strings.Repeat("a", 65): false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(`{"query":"{fail}"}`))
		r.Header.Set("Content-Type", asJSON)
		r.Header.Set(RequestIDHeader, given)
		w := httptest.NewRecorder()
		IdentifyRequests(f.handler).ServeHTTP(w, r)
		id := w.Header().Get(RequestIDHeader)
		require.Equal(t, kept, id == given, given)
		require.Contains(t, w.Body.String(), `"requestId":"`+id+`"`)
	}
}

func TestCORS(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for name, c := range map[string]struct {
		allowed []string
		origin  string
		want    string
	}{
		"closed by default": {nil, "https://a.example", ""},
		"on the list":       {[]string{"https://a.example"}, "https://a.example", "https://a.example"},
		"not on the list":   {[]string{"https://a.example"}, "https://b.example", ""},
		"all":               {[]string{"*"}, "https://b.example", "https://b.example"},
		"no page":           {[]string{"*"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			handler := cors(incoming.NewOrigins(c.allowed), inner)
			for _, method := range []string{http.MethodPost, http.MethodOptions} {
				r := httptest.NewRequest(method, "/graphql", nil)
				r.Header.Set("Origin", c.origin)
				r.Header.Set("Access-Control-Request-Method", "POST")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, c.want, w.Header().Get("Access-Control-Allow-Origin"))
				require.Contains(t, w.Header().Values("Vary"), "Origin")
				require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))
				if method == http.MethodPost {
					require.Equal(t, http.StatusTeapot, w.Code)
					continue
				}
				require.Equal(t, http.StatusNoContent, w.Code)
				require.Equal(t, c.want != "", w.Header().Get("Access-Control-Allow-Headers") != "")
			}
		})
	}
}
