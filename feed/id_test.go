package feed_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed"
)

func TestIDsAreUniqueAcrossWritersAndExactInADouble(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		other, err := feed.OpenIDs(w.ctx, w.s.DB)
		require.NoError(w.t, err)
		var mu sync.Mutex
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		for _, ids := range []*feed.IDs{w.ids, other} {
			for range 4 {
				wg.Go(func() {
					last := int64(0)
					for range 500 {
						id, err := ids.Next()
						if err != nil {
							w.t.Error(err)
							return
						}
						mu.Lock()
						if seen[id] || id <= last || int64(float64(id)) != id || id >= 1<<53 {
							w.t.Errorf("id %d after %d", id, last)
						}
						seen[id], last = true, id
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		id, err := w.ids.Next()
		require.NoError(w.t, err)
		require.WithinDuration(w.t, time.Now(), feed.TimeOf(id), time.Minute)
		require.GreaterOrEqual(w.t, id, feed.IDAt(feed.TimeOf(id)))
	})
}

func TestWriterNumbersRunOut(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for range 31 {
			_, err := feed.OpenIDs(w.ctx, w.s.DB)
			require.NoError(w.t, err)
		}
		_, err := feed.OpenIDs(w.ctx, w.s.DB)
		require.ErrorIs(w.t, err, feed.ErrNoWriter)
	})
}
