package transport

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tideline/graph/exec"
	"tideline/server/transport/incoming"
)

// A message of a client is understood or refused, and never makes a panic.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"type":"connection_init","payload":{"Authorization":"Bearer x"}}`,
		`{"type":"subscribe","id":"1","payload":{"query":"{a}","variables":{"n":1e999}}}`,
		`{"type":"ping","payload":null}`, `[`, `null`, `{"type":{}}`, "\xff", strings.Repeat("[", 20_000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMessage(data)
		if err != nil {
			return
		}
		require.True(t, utf8.Valid(data))
		require.True(t, json.Valid(data))
		_, _, _ = initToken(m.Payload)
		if r, err := incoming.Parse(m.Payload); err == nil {
			require.True(t, r.Query != "" || r.Extensions["persistedQuery"] != nil)
		}
		require.True(t, json.Valid(frame("pong", m.ID, m.Payload)))
	})
}

func TestFramesAreJSON(t *testing.T) {
	id := "a\"b\n\u2028<é"
	for _, d := range []*dialect{transportWS, legacyWS} {
		next, err := d.nextFrame(id, exec.Response{Data: json.RawMessage(`{"a":1}`)})
		require.NoError(t, err)
		var got struct {
			Type, ID string
			Payload  struct{ Data map[string]int }
		}
		require.NoError(t, json.Unmarshal(next, &got))
		require.Equal(t, id, got.ID)
		require.Equal(t, d.next, got.Type)
		require.Equal(t, map[string]int{"a": 1}, got.Payload.Data)
		require.True(t, json.Valid(d.beat))
	}
}

func TestBearer(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "Bearer x": "x", "bearer  x ": "x", "BEARER x": "x",
		"Bearer": "-", "Bearer ": "-", "Basic x": "-", "x": "-",
	} {
		token, ok := incoming.Bearer(value)
		require.Equal(t, want != "-", ok, value)
		if ok {
			require.Equal(t, want, token, value)
		}
	}
}
