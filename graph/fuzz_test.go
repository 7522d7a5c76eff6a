package graph

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed"
)

// An id is refused or means one row, and has one spelling.
func FuzzID(f *testing.F) {
	for _, text := range []string{
		globalID("User", 1), globalID("Post", 1<<53-1), globalID("Session", 1), globalID("Post", -1), "", "x", "VXNlcjox=", "\x00",
		base64.RawURLEncoding.EncodeToString([]byte("Post:01")), base64.RawURLEncoding.EncodeToString([]byte("Post:9223372036854775808")),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind, id, err := parseID(text)
		if err != nil {
			require.Equal(t, feed.BadInput, feed.CodeOf(err))
			require.Zero(t, id)
			return
		}
		require.Equal(t, text, globalID(kind, id))
		require.Positive(t, id)
	})
}
