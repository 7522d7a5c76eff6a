package ids_test

import (
	"sync"
	"testing"
	"time"

	"tideline/feed/feedtest"
	"tideline/feed/ids"

	"github.com/stretchr/testify/require"
)

func TestIDsAreUniqueAcrossWritersAndExactInADouble(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		other, err := ids.Open(w.Ctx, ids.Config{DB: w.Stores.DB})
		require.NoError(w, err)
		var mu sync.Mutex
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		for _, ids := range []*ids.Generator{w.IDs, other} {
			for range 4 {
				wg.Go(func() {
					last := int64(0)
					for range 500 {
						id, err := ids.Next()
						if err != nil {
							w.Error(err)
							return
						}
						mu.Lock()
						if seen[id] || id <= last || int64(float64(id)) != id || id >= 1<<53 {
							w.Errorf("id %d after %d", id, last)
						}
						seen[id], last = true, id
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		id, err := w.IDs.Next()
		require.NoError(w, err)
		require.WithinDuration(w, time.Now(), ids.TimeOf(id), time.Minute)
		require.GreaterOrEqual(w, id, ids.At(ids.TimeOf(id)))
	})
}

func TestWriterNumbersRunOut(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		for range 31 {
			_, err := ids.Open(w.Ctx, ids.Config{DB: w.Stores.DB})
			require.NoError(w, err)
		}
		_, err := ids.Open(w.Ctx, ids.Config{DB: w.Stores.DB})
		require.ErrorIs(w, err, ids.ErrNoLease)
	})
}
