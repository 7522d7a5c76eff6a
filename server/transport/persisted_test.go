package transport

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byHash returns a request with the hash of one document and the text of another. An empty text is omitted.
func byHash(hash, text string) string {
	query := ""
	if text != "" {
		quoted, _ := json.Marshal(text)
		query = `"query":` + string(quoted) + `,`
	}
	return `{` + query + `"extensions":{"persistedQuery":{"version":1,"sha256Hash":"` + hash + `"}}}`
}

func TestPersistedQueries(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.documents = newDocuments(10_000)
	const query, mutation = "{hello}", "mutation{set(n:3)}"
	hash := hashOf(query)
	require.Contains(t, f.post(byHash(hash, "")).Body.String(), `"PERSISTED_QUERY_NOT_FOUND"`)
	require.Contains(t, f.post(byHash(hash, query)).Body.String(), `"world"`)
	require.Contains(t, f.post(byHash(hash, "")).Body.String(), `"world"`)
	require.Contains(t, f.post(byHash(hashOf(mutation), mutation)).Body.String(), `"set":3`)

	get := func(hash string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		values := url.Values{"extensions": {`{"persistedQuery":{"version":1,"sha256Hash":"` + hash + `"}}`}}
		f.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/graphql?"+values.Encode(), nil))
		return w
	}
	require.Contains(t, get(hash).Body.String(), `"world"`)
	require.Equal(t, http.StatusMethodNotAllowed, get(hashOf(mutation)).Code)

	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":` + byHash(hash, "") + `}`)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)

	for name, body := range map[string]string{
		"another's hash":  byHash(hashOf("{a:hello}"), "{b:hello}"),
		"capitals":        byHash(strings.ToUpper(hashOf("{a:hello}")), "{a:hello}"),
		"empty hash":      byHash("", query),
		"endless hash":    byHash(strings.Repeat("a", 1000), ""),
		"hash a number":   `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":5}}}`,
		"another version": `{"extensions":{"persistedQuery":{"version":2,"sha256Hash":"` + hash + `"}}}`,
		"no object":       `{"query":"{hello}","extensions":{"persistedQuery":true}}`,
	} {
		require.Contains(t, f.post(body).Body.String(), `"BAD_USER_INPUT"`, name)
	}
	// An invalid document is not kept.
	f.post(byHash(hashOf("{nothing}"), "{nothing}"))
	require.Contains(t, f.post(byHash(hashOf("{nothing}"), "")).Body.String(), `"PERSISTED_QUERY_NOT_FOUND"`)

	f.handler.api.documents = newDocuments(0)
	require.Contains(t, f.post(byHash(hash, "")).Body.String(), `"PERSISTED_QUERY_NOT_SUPPORTED"`)
	require.Contains(t, f.post(byHash(hash, query)).Body.String(), `"world"`)
}

func TestPersistedQueriesAreBoundedInBytes(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.documents = newDocuments(20_000)
	text := func(i int) string { return fmt.Sprintf("{hello #%d%s\n}", i, strings.Repeat(" ", 1000)) }
	isKept := func(text string) bool {
		body := f.post(byHash(hashOf(text), "")).Body.String()
		if strings.Contains(body, "NOT_FOUND") {
			return false
		}
		require.Contains(t, body, "world")
		return true
	}
	for i := range 100 {
		require.Contains(t, f.post(byHash(hashOf(text(i)), text(i))).Body.String(), "world")
		require.True(t, isKept(text(0)), "in use")
	}
	keeps := func() (n int) {
		for i := range 100 {
			if isKept(text(i)) {
				n++
			}
		}
		return n
	}
	require.False(t, isKept(text(1)), "the longest unused went first")
	before := keeps()
	require.Greater(t, before, 10)
	require.Less(t, before, 20)
	large := "{hello " + strings.Repeat(" ", 25_000) + "}"
	require.Contains(t, f.post(byHash(hashOf(large), large)).Body.String(), "world")
	require.False(t, isKept(large))
	require.Equal(t, before, keeps(), "one that is too large drops no others")
}

func TestTrustedDocuments(t *testing.T) {
	f := newFixture(t, nil)
	file := filepath.Join(t.TempDir(), "documents.json")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	for text, want := range map[string]string{
		"":                     "JSON object",
		`["{hello}"]`:          "JSON object",
		`{"a":"{hello","b":1}`: "JSON object",
		"null":                 "JSON object",
		`{"a":"{hello}"}`:      "document a: the key must be the SHA-256 of the document in lower-case hexadecimal, " + hashOf("{hello}"),
		`{"` + hashOf("{nothing}") + `":"{nothing}"}`: "document " + hashOf("{nothing}"),
		`{"` + hashOf("{hello") + `":"{hello"}`:       "document " + hashOf("{hello"),
	} {
		write(text)
		_, err := newTrusted(t.Context(), file, nil, f.handler.api.config.Engine)
		require.ErrorContains(t, err, want)
	}
	_, err := newTrusted(t.Context(), file+"x", nil, f.handler.api.config.Engine)
	require.ErrorIs(t, err, os.ErrNotExist)

	const greet, set, own = "{hello}", "mutation s($n:Int!){set(n:$n)}", "{own:hello}"
	write(`{"` + hashOf(greet) + `":"` + greet + `","` + hashOf(set) + `":"` + set + `"}`)
	f.handler.api.documents, err = newTrusted(t.Context(), file, map[string]string{hashOf(own): own}, f.handler.api.config.Engine)
	require.NoError(t, err)
	require.Contains(t, f.post(byHash(hashOf(greet), "")).Body.String(), "world")
	require.Contains(t, f.post(byHash(hashOf(greet), greet)).Body.String(), "world")
	require.Contains(t, f.post(`{"query":"{hello}"}`).Body.String(), "world", "the text of one is as good")
	require.Contains(t, f.post(`{"variables":{"n":8},"extensions":{"persistedQuery":{"version":1,"sha256Hash":"`+hashOf(set)+`"}}}`).Body.String(), `"set":8`)
	require.Contains(t, f.post(byHash(hashOf(own), "")).Body.String(), "world")
	for _, body := range []string{
		`{"query":"{ hello }"}`, byHash("other", ""), byHash(hashOf(greet), "{a:hello}"),
		byHash(hashOf("{a:hello}"), "{a:hello}"), `{"query":"{__typename}"}`,
	} {
		require.Contains(t, f.post(body).Body.String(), `"DOCUMENT_NOT_TRUSTED"`, body)
	}
}
