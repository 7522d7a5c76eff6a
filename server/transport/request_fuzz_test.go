package transport

import (
	"encoding/json"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tideline/server/transport/incoming"
)

// A body is refused, without any of its text in the error, or it is one JSON object in UTF-8
// that has the parsed request.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"query":"{hello}","variables":{"n":9007199254740993},"operationName":null,"extensions":{}}`,
		`{"query":"{hello}"} `, `{"query":"{hello}"}x`, `[{"query":"{hello}"}]`, `null`, ``, `{`, "{\"query\":\"\xff\"}",
		`{"QUERY":"{hello}"}`, `{"query":1}`, `{"query":"a","query":"b"}`, `{"variables":[]}`, `{"query":"\ud800"}`,
		`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}`, `{"extensions":{"persistedQuery":{"version":1e0,"sha256Hash":[]}}}`,
		`query=%7Bhello%7D&variables=%7B%22n%22%3A1%7D`, `query={a}&query={b}`, `query=%ff`, `query={a}&variables={`,
	} {
		f.Add([]byte(body))
	}
	documents := newDocuments(1 << 20)
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := incoming.Parse(body)
		if err == nil {
			require.True(t, utf8.Valid(body))
			var object map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(body, &object))
			require.True(t, request.Query != "" || request.Extensions["persistedQuery"] != nil)
			_, _, errs := documents.resolve(request)
			if len(errs) > 0 {
				require.NotEmpty(t, errs[0].Extensions["code"])
			}
		} else {
			require.Less(t, len(err.Error()), 100, "nothing is echoed")
		}
		request, err = incoming.ParseParams(string(body))
		require.True(t, err != nil || utf8.ValidString(request.Query))
		_, _ = incoming.Credential(http.Header{"Authorization": {string(body)}, incoming.ActAs: {string(body)}})
		mediaType, ok := incoming.Negotiate([]string{string(body)})
		require.Equal(t, ok, mediaType == incoming.TypeJSON || mediaType == incoming.TypeResponse)
	})
}
