package clientstate

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/timeline"
)

// A cursor is the same text, whether or not others share its end: with all that differs
// between those who are told of one post at once.
func TestSharedEndingsMakeTheSameCursors(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, posts := range []int{0, 1, leastShared, 9, 10, 11, 100, MaxRecent, MaxRecent + 1} {
		ids := make([]int64, posts)
		for i := range ids {
			ids[i] = 1<<40 + int64(i)<<rng.IntN(20) + int64(i)<<20
		}
		var endings Endings
		var tellers sync.WaitGroup
		for teller := range 4 {
			rng := rand.New(rand.NewPCG(uint64(posts), uint64(teller)))
			tellers.Go(func() {
				for range 200 {
					c := State{Position: timeline.Position{Epoch: rng.Int64N(1 << rng.IntN(50)), Offset: rng.Int64N(1000)}, low: rng.Int64N(1 << rng.IntN(41))}
					c.recent = slices.Clone(ids)
					if rng.IntN(8) == 0 && posts > 0 { // one who does not have all
						c.Drop(ids[rng.IntN(posts)])
					}
					v := account.Viewer{ID: 1 + rng.Int64N(1<<40)}
					id := rng.Int64N(1 << 53)
					shared := c.AppendCursor([]byte("x"), v, id, &endings)
					if alone := c.Cursor(v, id); "x"+alone != string(shared) {
						t.Errorf("%d posts, %+v: %s alone, %s shared", posts, c, alone, shared)
					}
				}
			})
		}
		tellers.Wait()
		if posts == 100 {
			require.NotNil(t, endings.last.Load(), "nothing was shared")
		}
	}
}

// BenchmarkCursor makes the cursors of clients who have the same posts, for one at a time
// and for many at once.
func BenchmarkCursor(b *testing.B) {
	for _, posts := range []int{2, 100, 500} {
		c := State{Position: timeline.Position{Epoch: 12345, Offset: 3}, low: 1 << 40}
		for i := range posts {
			c.Take(1<<40 + int64(i+1)<<21)
		}
		for name, endings := range map[string]*Endings{"alone": nil, "shared": {}} {
			b.Run(name+"/"+strconv.Itoa(posts), func(b *testing.B) {
				b.ReportAllocs()
				text := make([]byte, 0, 8192)
				for i := range b.N {
					text = c.AppendCursor(text[:0], account.Viewer{ID: int64(i + 1)}, 1<<41, endings)
				}
			})
		}
	}
}
