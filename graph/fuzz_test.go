package graph

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/refusal"
)

// An id is either refused or names one row, and each row has one spelling of its id.
func FuzzID(f *testing.F) {
	for _, text := range []string{
		ent.NodeID("User", 1), ent.NodeID("Post", 1<<53-1), ent.NodeID("Session", 1), ent.NodeID("Post", -1), ent.NodeID("Relationship:1", 2), "", "x", "VXNlcjox=", "\x00",
		base64.RawURLEncoding.EncodeToString([]byte("Post:01")), base64.RawURLEncoding.EncodeToString([]byte("Post:9223372036854775808")),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind, id, err := parseID(text)
		if err != nil {
			require.Equal(t, refusal.BadInput, refusal.CodeOf(err))
			require.Zero(t, id)
			return
		}
		require.Equal(t, text, ent.NodeID(kind, id))
		require.Positive(t, id)
	})
}
