package feed

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cursor is refused or belongs to the list and owner it is used with, and has
// one spelling.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		cursor{score: 1.5, id: 7}.encode(listLatest, 1), cursor{score: math.NaN(), id: -1}.encode(listRanked, 1), cursor{}.encode(listUsers, 0),
		cursor{score: 1.5, id: 7}.encode(listLatest, 2), "",
		cursor{score: 1.5, id: 7, tail: rankedCursor{span{low: 3, high: 1 << 50}, []int64{7, 9}}.tail()}.encode(listLatest, 1), "x", "AQE", cursor{score: 1.5, id: 7}.encode(listLatest, 1) + "=", "\x00",
	} {
		f.Add(text, byte(listLatest), int64(1))
	}
	f.Fuzz(func(t *testing.T, text string, l byte, owner int64) {
		c, err := decodeCursor(text, list(l), owner)
		if err != nil {
			require.Equal(t, BadInput, CodeOf(err))
			require.Zero(t, c)
			return
		}
		require.Equal(t, text, c.encode(list(l), owner))
		c.held()
		if p, err := c.passage(); err == nil {
			c.tail = p.tail()
			again, err := c.passage()
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
		_, err = decodeCursor(text, list(l)+1, owner)
		require.Error(t, err)
		_, err = decodeCursor(text, list(l), owner+1)
		require.Error(t, err)
	})
}

// However long a way through the ranked timeline and however old its posts, its
// cursors are taken back.
func TestLongestWayFitsIntoACursor(t *testing.T) {
	const largestInbox = 1000
	f := &Feed{cfg: Config{InboxCap: largestInbox}}
	way := rankedCursor{window: span{low: 1, high: 1 << 53}}
	for i := range int64(f.maxRankedShown()) {
		way.shown = append(way.shown, (i+1)*(1<<53/int64(f.maxRankedShown())))
	}
	c, err := decodeCursor(cursor{id: 7, tail: way.tail()}.encode(listRanked, 1), listRanked, 1)
	require.NoError(t, err)
	got, err := c.passage()
	require.NoError(t, err)
	require.Equal(t, way, got)
}
