package home_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/job"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// refusing is a hook that makes Redis refuse commands while it is on.
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

// Redis refuses the changes of users to their own feeds, and recovers before the job is retried.
// The next read of each user shows the change, before and after Redis recovers.
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
		profile := func(v session.Viewer) (ids []int64) {
			posts, _, err := w.Home.Reader.PostsBy(w.Ctx, v.ID, v.ID, timeline.Range{Limit: 10})
			require.NoError(t, err)
			for _, p := range posts {
				ids = append(ids, p.ID)
			}
			return ids
		}
		ann, bob := w.User("ann"), w.User("bob")
		bobs := w.Post(bob, schema.Public)
		_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
		require.NoError(t, err)
		require.NoError(t, w.Home.Reader.BuildInbox(w.Ctx, ann.ID))
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

// The time of a call ends before the caller's inbox is up to date. A job updates it.
func TestCallWhoseTimeIsOverLeavesTheInboxToAJob(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann, bob := w.User("ann"), w.User("bob")
		over, end := context.WithCancel(w.Ctx)
		end()
		w.Home.Own.SyncInbox(over, ann.ID, bob.ID, 1)
		left := s.DB.Job.Query().OnlyX(w.Ctx)
		require.Equal(t, job.RelationChanged, left.Kind)
		var about job.Relation
		require.NoError(t, json.Unmarshal(left.Payload, &about))
		require.Equal(t, [2]int64{ann.ID, bob.ID}, about.Users)
	})
}

// The memory of Redis is full while a user posts, follows and unfollows, and no longer full when
// the user reads through another server. No job is retried in between.
func TestOwnWritesAreReadThroughAnotherServerThoughRedisWasFull(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.StartRedis(t).URL()})
	require.NoError(t, s.Migrate(t.Context()))
	w, other := newWorld(t, s, feedtest.Options{}), newWorld(t, s, feedtest.Options{})
	whileFull := func(do func()) {
		require.NoError(t, s.Redis.ConfigSet(w.Ctx, "maxmemory", "1").Err())
		require.ErrorContains(t, s.Redis.Set(w.Ctx, "more", 1, 0).Err(), "OOM")
		do()
		require.NoError(t, s.Redis.ConfigSet(w.Ctx, "maxmemory", "0").Err())
	}
	profile := func(v session.Viewer) int {
		posts, _, err := other.Home.Reader.PostsBy(w.Ctx, v.ID, v.ID, timeline.Range{Limit: 10})
		require.NoError(t, err)
		return len(posts)
	}
	ready := func(v session.Viewer) {
		t.Helper()
		_, err := w.Timelines.Visits.Visit(w.Ctx, v.ID)
		require.NoError(t, err)
		require.NoError(t, w.Audit.RebuildOutbox(w.Ctx, v.ID))
		require.Eventually(t, func() bool { // the build that an earlier read requested may be unfinished
			_ = w.Home.Reader.BuildInbox(w.Ctx, v.ID)
			_, state := w.inbox(v)
			return state == timeline.Ready
		}, time.Minute, 10*time.Millisecond)
	}
	ann, bob := w.User("ann"), w.User("bob")
	bobs := w.Post(bob, schema.Public)

	ready(ann)
	var own int64
	whileFull(func() { own = w.Post(ann, schema.Public) })
	require.Equal(t, []int64{own}, other.Timeline(ann, 10))
	require.Equal(t, 1, profile(ann))

	ready(ann)
	whileFull(func() { w.Follow(ann, bob) })
	require.Equal(t, feedtest.NewestFirst(own, bobs), other.Timeline(ann, 10))

	ready(ann)
	whileFull(func() {
		_, err := w.Feed.Unfollow(w.Ctx, ann, bob.ID)
		require.NoError(t, err)
		require.NoError(t, w.Feed.DeletePost(w.Ctx, ann, own))
	})
	require.Empty(t, other.Timeline(ann, 10))
	require.Zero(t, profile(ann))
}
