package workers_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// fences counts the fences of an author. Each sync of a follower's inbox begins with one.
type fences struct {
	key string
	n   atomic.Int64
}

func (f *fences) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *fences) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *fences) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(f.key)) }) {
			f.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// A user follows and unfollows another repeatedly, and the jobs come late. The first job syncs the
// inbox for all of them, and each job leaves it as SQL has it.
func TestLateTogglesAreDoneAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		f := newFriends(t, s)
		counted := &fences{key: timeline.Outbox(f.author.ID).String() + ":f"}
		s.Redis.AddHook(counted)
		follows := true
		toggle := func(times int, late time.Duration) (syncs int64) {
			for range times {
				change := f.Feed.Follow
				if follows {
					change = f.Feed.Unfollow
				}
				_, err := change(f.Ctx, f.author, f.follower.ID)
				require.NoError(t, err)
				follows = !follows
			}
			before := counted.n.Load()
			w := feedtest.New(t, s, feedtest.Options{Queue: queue.Config{Pools: map[queue.Pool]int{queue.Small: 1, queue.Large: 1, queue.Relations: 1}}})
			cfg := w.WorkersConfig()
			cfg.Now = func() time.Time { return time.Now().Add(late) }
			ws, err := workers.New(cfg)
			require.NoError(t, err)
			stop := w.Run(ws.Run)
			w.Drain()
			stop()
			return counted.n.Load() - before
		}
		require.EqualValues(t, 1, toggle(15, time.Minute))
		f.requireInbox()
		require.EqualValues(t, 1, toggle(15, time.Minute))
		f.requireInbox(f.post)
		require.EqualValues(t, 4, toggle(4, -time.Hour), "those that are in time do their own")
		f.requireInbox(f.post)
		require.EqualValues(t, 1, toggle(1, time.Minute))
		f.requireInbox()
	})
}
