package home_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// refusing is a hook with which Redis takes no commands for a while.
type refusing struct{ on atomic.Bool }

var errRefused = errors.New("refused")

func (r *refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.on.Load() {
			cmd.SetErr(errRefused)
			return errRefused
		}
		return next(ctx, cmd)
	}
}

func (r *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if r.on.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(errRefused)
			}
			return errRefused
		}
		return next(context.WithoutCancel(ctx), cmds) // however busy the machine is
	}
}

// Redis does not take what users do to their own feeds, and is well again before the
// job is tried again. Their next reads show it, whether Redis is well or not.
func TestOwnWritesAreReadThoughRedisRefusedThem(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w, redis := newWorld(t, s, feedtest.Options{}), &refusing{}
		s.Redis.AddHook(redis)
		during := func(refused func()) {
			redis.on.Store(true)
			defer redis.on.Store(false)
			refused()
		}
		profile := func(v account.Viewer) (ids []int64) {
			posts, err := w.Home.PostsBy(w.Ctx, v.ID, v.ID, timeline.Range{Limit: 10})
			require.NoError(t, err)
			for _, p := range posts {
				ids = append(ids, p.ID)
			}
			return ids
		}
		ann, bob := w.User("ann"), w.User("bob")
		bobs := w.Post(bob, schema.Public)
		_, err := w.Timelines.Visit(w.Ctx, ann.ID)
		require.NoError(t, err)
		require.NoError(t, w.Home.BuildInbox(w.Ctx, ann.ID))
		require.NoError(t, w.Audit.RebuildOutbox(w.Ctx, ann.ID))
		require.Empty(t, w.Timeline(ann, 10))
		require.Empty(t, profile(ann))

		var first int64
		during(func() {
			first = w.Post(ann, schema.Public)
			require.Equal(t, []int64{first}, w.Timeline(ann, 10))
			require.Equal(t, []int64{first}, profile(ann))
		})
		require.Equal(t, []int64{first}, w.Timeline(ann, 10))
		require.Equal(t, []int64{first}, profile(ann))
		held, state := w.inbox(ann)
		require.Equal(t, timeline.Ready, state)
		require.Equal(t, []int64{first}, held)

		during(func() { w.Follow(ann, bob) })
		require.Equal(t, feedtest.NewestFirst(first, bobs), w.Timeline(ann, 10))
		during(func() {
			_, err := w.Feed.Unfollow(w.Ctx, ann, bob.ID)
			require.NoError(t, err)
			require.NoError(t, w.Feed.DeletePost(w.Ctx, ann, first))
		})
		require.Empty(t, w.Timeline(ann, 10))
		require.Empty(t, profile(ann))
	})
}
