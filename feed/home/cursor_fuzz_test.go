package home

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/paging"
	"tideline/timeline"
)

// Decoding accepts any tail of a ranked cursor without harm, and every accepted tail has one
// meaning.
func FuzzRankedTail(f *testing.F) {
	f.Add(rankedCursor{"", timeline.Range{After: 3, Before: 1 << 50}, []int64{7, 9}}.tail(), "")
	f.Add(rankedCursor{"near", timeline.Range{After: 3, Before: 1 << 50}, []int64{7, 9}}.tail(), "near")
	f.Add("near", "near")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, tail, name string) {
		name = strings.ReplaceAll(name, "\x00", "")
		if c, err := rankedCursorIn(tail, name); err == nil {
			again, err := rankedCursorIn(c.tail(), name)
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	})
}

// A ranked cursor is accepted, however many posts have been shown and however old they are.
func TestLongestRankedCursorIsAccepted(t *testing.T) {
	const largestInbox = 1000
	most := int64(maxRankedShown(largestInbox))
	longest := rankedCursor{ranking: strings.Repeat("n", 32), window: timeline.Range{After: 1, Before: 1 << 53}}
	for i := range most {
		longest.shown = append(longest.shown, (i+1)*(1<<53/most))
	}
	c, err := paging.Decode(paging.Cursor{ID: 7, Tail: longest.tail()}.Encode(paging.RankedBy, 1), paging.RankedBy, 1)
	require.NoError(t, err)
	got, err := rankedCursorIn(c.Tail, longest.ranking)
	require.NoError(t, err)
	require.Equal(t, longest, got)
}
