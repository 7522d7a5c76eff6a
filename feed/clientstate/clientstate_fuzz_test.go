package clientstate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/paging"
	"tideline/timeline"
)

// tail is what the cursors of a client in this state carry.
func (c *State) tail(tb testing.TB) string {
	cursor, err := paging.Decode(c.Cursor(account.Viewer{ID: 1}, 1), paging.Latest, 1)
	require.NoError(tb, err)
	return cursor.Tail
}

// A timeline accepts any tail of a cursor without harm, and a state that it finds
// there has one encoding.
func FuzzTail(f *testing.F) {
	state := State{Position: timeline.Position{Epoch: 5, Offset: 2}, low: 3, recent: []int64{7, 9}}
	f.Add(state.tail(f))
	f.Add("")
	f.Fuzz(func(t *testing.T, tail string) {
		if c, ok := Decode(tail); ok && c.tail(t) != "" {
			again, ok := Decode(c.tail(t))
			require.True(t, ok)
			require.Equal(t, c.tail(t), again.tail(t))
		}
	})
}
