package ids

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestIDsAreUniqueAcrossWritersAndExactInADouble(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		one, err := Open(t.Context(), Config{DB: s.DB})
		require.NoError(t, err)
		two, err := Open(t.Context(), Config{DB: s.DB})
		require.NoError(t, err)
		var mu sync.Mutex
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		for _, ids := range []*Generator{one, two} {
			for range 4 {
				wg.Go(func() {
					last := int64(0)
					for range 500 {
						id, err := ids.Next()
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if seen[id] || id <= last || int64(float64(id)) != id || id >= 1<<53 {
							t.Errorf("id %d after %d", id, last)
						}
						seen[id], last = true, id
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		id, err := one.Next()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), TimeOf(id), time.Minute)
		require.GreaterOrEqual(t, id, At(TimeOf(id)))
	})
}

func TestWriterNumbersRunOut(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for range 32 {
			_, err := Open(t.Context(), Config{DB: s.DB})
			require.NoError(t, err)
		}
		_, err := Open(t.Context(), Config{DB: s.DB})
		require.ErrorIs(t, err, ErrNoLease)
	})
}
