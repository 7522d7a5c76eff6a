package transport

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tideline/graph/exec"
	"tideline/server/transport/incoming"
)

// Every client message is either parsed or refused, without a panic.
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
		_, _, _ = incoming.InitCredential(m.Payload)
		if r, err := incoming.Parse(m.Payload); err == nil {
			require.True(t, r.Query != "" || r.Extensions["persistedQuery"] != nil)
		}
		require.True(t, json.Valid(frame("pong", m.ID, m.Payload)))
	})
}

func TestFramesAreJSON(t *testing.T) {
	id := "a\"b\n\u2028<é"
	next, err := nextFrame(id, exec.Response{Data: json.RawMessage(`{"a":1}`)})
	require.NoError(t, err)
	var got struct {
		Type, ID string
		Payload  struct{ Data map[string]int }
	}
	require.NoError(t, json.Unmarshal(next, &got))
	require.Equal(t, id, got.ID)
	require.Equal(t, "next", got.Type)
	require.Equal(t, map[string]int{"a": 1}, got.Payload.Data)
	require.True(t, json.Valid(beatMessage))
}

func TestCredential(t *testing.T) {
	for _, c := range []struct{ bearer, actAs, want string }{
		{"", "", ""}, {"Bearer x", "", "x"}, {"bearer  x ", "", "x"}, {"BEARER x", "", "x"},
		{"Bearer", "", "-"}, {"Bearer ", "", "-"}, {"Basic x", "", "-"}, {"x", "", "-"},
		{"Bearer x", " external:7 ", "x external:7"}, {"", "external:7", "-"}, {"Basic x", "external:7", "-"},
	} {
		h := http.Header{}
		fields := map[string]string{}
		if c.bearer != "" {
			h.Set("Authorization", c.bearer)
			fields["authorization"] = c.bearer
		}
		if c.actAs != "" {
			h.Set("tideline-act-as", c.actAs)
			fields["Tideline-Act-As"] = c.actAs
		}
		payload, err := json.Marshal(fields)
		require.NoError(t, err)
		text, ok := incoming.Credential(h)
		again, okAgain, err := incoming.InitCredential(payload)
		require.NoError(t, err)
		require.Equal(t, c.want != "-", ok, c)
		require.Equal(t, ok, okAgain, c)
		require.Equal(t, text, again)
		if ok {
			require.Equal(t, c.want, text, c)
		}
		h.Add("Tideline-Act-As", "one")
		h.Add("Tideline-Act-As", "two")
		_, ok = incoming.Credential(h)
		require.False(t, ok)
	}
	_, ok, err := incoming.InitCredential([]byte(`{"Authorization":"Bearer x","Tideline-Act-As":7}`))
	require.NoError(t, err)
	require.False(t, ok)
}
