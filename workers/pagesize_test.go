package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/workers"
)

// A fan-out that fails in the middle is resumed by a process with another page size. It reaches
// every active follower in each walk of the follower scan, even if the audience fits into one page
// of only one of the two sizes.
func TestFanOutGoesOnWithPagesOfAnotherSize(t *testing.T) {
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
			t.Run(fmt.Sprintf("%s/%d", c.name, size), func(t *testing.T) {
				t.Parallel()
				storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
					a := newIdleAudience(t, s, c.followers, c.active)
					a.othersRead(t, c.others)
					var w *workers.Workers
					var fail sync.Once
					failed := make(chan struct{})
					s.Redis.AddHook(&pushHook{before: func(_ context.Context, n int64, _ string) (err error) {
						if n < 2 {
							return nil
						}
						fail.Do(func() {
							w.Queue.Pause()
							err = errors.New("the worker fails here")
							close(failed)
						})
						return err
					}})
					w = a.work(t, s.Redis)
					public := schema.Public
					p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
					require.NoError(t, err)
					<-failed
					a.pageSize = size
					a.work(t, s.Redis)
					a.Drain()
					f := <-a.fanouts
					a.requireReached(t, p.ID)
					require.GreaterOrEqual(t, f.Pushed, c.active)
					require.LessOrEqual(t, f.Pushed, c.active+2, "those who read within the last minutes are reached again")

					// The next process has this page size from its beginning.
					next, f := a.post(t)
					a.requireReached(t, next)
					require.Equal(t, c.active, f.Pushed)
				})
			})
		}
	}
}
