package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/workers"
)

// The size of pages changes in the middle of a fan-out, and what is a large one, and it fails
// there, or goes on. Every
// active follower is reached, whichever way the follower scan goes, and whether the audience is one
// page by then, or was one.
func TestPagesOfAnotherSizeReachEverybody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                      string
		followers, active, others int
	}{
		{"few are active", 220, 10, 0},
		{"some are active", 84, 20, 0},
		{"all are active", 42, 42, 0},
		{"many others are active", 45, 45, 200},
	} {
		for _, size := range []int{2, 1000} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%t", c.name, size, fails), func(t *testing.T) {
					storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
						a := newIdleAudience(t, s, c.followers, c.active)
						a.othersRead(t, c.others)
						var w *workers.Workers
						var set sync.Once
						hook := &pushHook{before: func(_ context.Context, n int64, _ string) (err error) {
							if n < 2 {
								return nil
							}
							set.Do(func() {
								err = errors.Join(w.SetPageSize(size), a.Feed.SetLargeAudience(1000))
								if fails {
									err = errors.New("the worker fails here")
								}
							})
							return err
						}}
						s.Redis.AddHook(hook)
						w = a.work(t, s.Redis)
						post, f := a.post(t)
						require.Equal(t, size, w.PageSize())
						a.requireReached(t, post)
						require.GreaterOrEqual(t, f.Pushed, c.active)
						require.LessOrEqual(t, f.Pushed, c.active+2, "those who read within the last minutes are reached again")

						// The next one has pages of this size from its beginning, and is small.
						next, f := a.post(t)
						a.requireReached(t, next)
						require.Equal(t, c.active, f.Pushed)
					})
				})
			}
		}
	}
}

// A page has at least one follower.
func TestSetPageSizeRefuses(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	w := newIdleAudience(t, s, 1, 0).work(t, s.Redis)
	require.EqualError(t, w.SetPageSize(0), "workers: PageSize is 0: it must be at least 1")
	require.Equal(t, 5, w.PageSize())
}
