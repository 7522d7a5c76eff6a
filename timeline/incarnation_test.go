package timeline_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// eachRollback runs fn with each way in which Redis can be rolled back. Writes between remember and
// rollBack are lost.
func eachRollback(t *testing.T, fn func(t *testing.T, rdb redisclient.Client, remember, rollBack func())) {
	open := func(t *testing.T, r *storagetest.RedisServer) redisclient.Client {
		return storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: r.URL()}).Redis
	}
	t.Run("restarted from a snapshot", func(t *testing.T) {
		r := storagetest.StartRedis(t)
		fn(t, open(t, r), func() { r.Snapshot(t) }, func() { r.Restart(t) })
	})
	t.Run("a replica without the tail takes over", func(t *testing.T) {
		r, replica := storagetest.StartRedis(t), storagetest.StartRedis(t)
		replica.Follow(t, r) // this gives a new id to a master that had no replica
		fn(t, open(t, r), func() { replica.Follow(t, r); replica.Promote(t) }, func() { replica.TakeOver(t, r) })
	})
}

// Everything that was begun before Redis was rolled back is Missing, and is rebuilt as after a
// wipe.
func TestRolledBackFeedsAreMissing(t *testing.T) {
	t.Parallel()
	eachRollback(t, func(t *testing.T, rdb redisclient.Client, remember, rollBack func()) {
		var reborn atomic.Int64
		c := newClock()
		s, err := timeline.New(rdb, timeline.Config{InboxCap: inboxCap, OutboxCap: outboxCap, Now: c.Now,
			Reborn: func() { reborn.Add(1) }})
		require.NoError(t, err)
		ctx := t.Context()
		feeds := []timeline.Key{timeline.Inbox(1), timeline.Outbox(1)}
		require.NoError(t, s.Visits.Touch(ctx, 1))
		for _, k := range feeds {
			build(t, s, k, down(5, 1), 0)
		}
		known, err := s.Latest.IDs(ctx, []int64{1})
		require.NoError(t, err)
		require.NoError(t, s.Latest.Store(ctx, known, map[int64]int64{1: 5}))
		require.NoError(t, s.Fences.Watch(ctx, 1, 7))
		before, err := s.Visits.Visit(ctx, 1)
		require.NoError(t, err)
		remember()

		// Redis loses all of this.
		pushed, err := s.Inboxes.Deliver(ctx, 6, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{1}, pushed)
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 6))
		require.NoError(t, s.Feeds.Remove(ctx, timeline.Inbox(1), 2))
		require.NoError(t, s.Fences.Fence(ctx, 1, 9))
		rollBack()

		for _, k := range feeds {
			require.Equal(t, timeline.Missing, coverage(t, s, k).State, k)
		}
		_, _, whole, err := s.Journals.Changes(ctx, 1, before)
		require.NoError(t, err)
		require.False(t, whole, "the removal is not in the journal")
		known, err = s.Latest.IDs(ctx, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{-1}, known.IDs)
		_, whole, err = s.Fences.Fenced(ctx, 1, 7, c.Now())
		require.NoError(t, err)
		require.False(t, whole, "a fence is lost")

		// Pushes into the remains do not make the feed readable.
		require.NoError(t, s.Inboxes.Push(ctx, 7, []int64{1}, func() {}))
		at, part, err := s.Visits.VisitPage(ctx, 1, timeline.Range{Limit: 9})
		require.NoError(t, err)
		require.Zero(t, at)
		require.Equal(t, timeline.Missing, part.State)
		require.EqualValues(t, 1, reborn.Load())

		for _, k := range feeds {
			b, started, err := s.Feeds.Begin(ctx, k)
			require.NoError(t, err)
			require.True(t, started)
			require.NoError(t, s.Inboxes.Push(ctx, 8, []int64{1}, func() {}))
			require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 8))
			ok, err := s.Feeds.Finish(ctx, &b, []int64{7, 6, 5, 4, 3, 1}, 0)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, []int64{8, 7, 6, 5, 4, 3, 1}, page(t, s, k, timeline.Range{Limit: 9}))
		}
		at, err = s.Visits.Visit(ctx, 1)
		require.NoError(t, err)
		require.NotZero(t, at, "the new inbox is kept")
		require.NoError(t, s.Latest.Store(ctx, known, map[int64]int64{1: 7}))
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 9))
		known, err = s.Latest.IDs(ctx, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{9}, known.IDs)
	})
}

// A script that finds a feed that is not intact deletes its coverage. Otherwise, if the slot
// returned to the master where the feed was begun, the feed would look complete without the change.
func TestChangeOfARolledBackFeedEndsIt(t *testing.T) {
	t.Parallel()
	changes := map[string]func(s *timeline.Store, ctx context.Context, k timeline.Key) error{
		"add":    func(s *timeline.Store, ctx context.Context, k timeline.Key) error { return s.Feeds.Add(ctx, k, 9) },
		"remove": func(s *timeline.Store, ctx context.Context, k timeline.Key) error { return s.Feeds.Remove(ctx, k, 3) },
		"replace": func(s *timeline.Store, ctx context.Context, _ timeline.Key) error {
			return s.Feeds.Replace(ctx, 1, []int64{3}, nil, 0, true)
		},
		"invalidate": func(s *timeline.Store, ctx context.Context, _ timeline.Key) error {
			return s.Journals.InvalidatePositions(ctx, 1, 0)
		},
		"arrive late": func(s *timeline.Store, ctx context.Context, _ timeline.Key) error {
			return s.Inboxes.DeliverLate(ctx, timeline.Arrival{Post: 9}, []int64{1})
		},
		"visit": func(s *timeline.Store, ctx context.Context, _ timeline.Key) error { return s.Visits.Touch(ctx, 1) },
	}
	s0 := storagetest.StartRedis(t)
	rdb := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: s0.URL()}).Redis
	s, _ := newStore(t, rdb)
	ctx := t.Context()
	for name, change := range changes {
		require.NoError(t, rdb.FlushAll(ctx).Err())
		require.NoError(t, s.Visits.Touch(ctx, 1))
		build(t, s, timeline.Inbox(1), down(5, 1), 0)
		begun, err := rdb.HGet(ctx, inboxMeta(1), "redis").Result()
		require.NoError(t, err)
		require.NoError(t, rdb.HSet(ctx, inboxMeta(1), "redis", "elsewhere").Err())
		require.NoError(t, change(s, ctx, timeline.Inbox(1)), name)
		n, err := rdb.Exists(ctx, inboxMeta(1)).Result()
		require.NoError(t, err)
		if n > 0 { // coverage that was created here would do
			require.NoError(t, rdb.HSet(ctx, inboxMeta(1), "redis", begun).Err())
		}
		require.Equal(t, timeline.Missing, coverage(t, s, timeline.Inbox(1)).State, name)
		life, err := rdb.PTTL(ctx, inboxSet(1)).Result()
		require.NoError(t, err)
		require.Positive(t, life, "pushes find a set that expires: %s", name)
	}
}

// apart returns a user whose inbox and activity are on different masters, and the addresses of
// these.
func apart(t *testing.T, rdb redisclient.Client) (user int64, inbox, activity string) {
	t.Helper()
	cluster := rdb.(*redis.ClusterClient)
	for user = 1; ; user++ {
		a, err := cluster.MasterForKey(t.Context(), inboxSet(user))
		require.NoError(t, err)
		b, err := cluster.MasterForKey(t.Context(), activeKey(user))
		require.NoError(t, err)
		if inbox, activity = a.Options().Addr, b.Options().Addr; inbox != activity {
			return user, inbox, activity
		}
	}
}

// save makes the master at the address write its data.
func save(t *testing.T, addr string) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	require.NoError(t, c.Save(t.Context()).Err())
}

// One master of a cluster is rolled back, and the other is not.
func TestOneMasterIsRolledBack(t *testing.T) {
	t.Parallel()
	c := storagetest.StartCluster(t)
	rdb := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: c.URL()}).Redis
	s, _ := newStore(t, rdb)
	ctx := t.Context()
	user, inboxAt, activityAt := apart(t, rdb)
	deliver := func(post int64) (reached bool) {
		t.Helper()
		pushed, err := s.Inboxes.Deliver(ctx, post, []int64{user})
		require.NoError(t, err)
		return len(pushed) > 0
	}
	missing := func(why string) {
		t.Helper()
		at, part, err := s.Visits.VisitPage(ctx, user, timeline.Range{Limit: 9})
		require.NoError(t, err)
		require.Zero(t, at, why)
		require.Equal(t, timeline.Missing, part.State, why)
		require.Equal(t, timeline.Missing, coverage(t, s, timeline.Inbox(user)).State, why)
	}
	require.NoError(t, s.Visits.Touch(ctx, user))
	build(t, s, timeline.Inbox(user), []int64{1}, 0)
	save(t, activityAt)
	save(t, inboxAt)

	require.True(t, deliver(2))
	c.Restart(t, inboxAt, true)
	missing("the inbox alone is rolled back")
	build(t, s, timeline.Inbox(user), []int64{2, 1}, 0)
	require.Equal(t, []int64{2, 1}, page(t, s, timeline.Inbox(user), timeline.Range{Limit: 9}))

	// Redis loses the user's activity for a while, and the loss is no longer visible. The inbox
	// lacks post 3, and its own master has been up all the time.
	c.Restart(t, activityAt, false)
	require.False(t, deliver(3))
	c.Restart(t, activityAt, true)
	require.True(t, deliver(4))
	require.Equal(t, []int64{4, 2, 1}, page(t, s, timeline.Inbox(user), timeline.Range{Limit: 9}))
	missing("the activity alone is rolled back")
	build(t, s, timeline.Inbox(user), []int64{4, 3, 2, 1}, 0)
	at, part, err := s.Visits.VisitPage(ctx, user, timeline.Range{Limit: 9})
	require.NoError(t, err)
	require.NotZero(t, at)
	require.Equal(t, []int64{4, 3, 2, 1}, part.IDs)
}

// While slots move to a new master, a reader finds in a Ready inbox everything that was delivered
// before.
func TestGrowingClusterOmitsNothing(t *testing.T) {
	t.Parallel()
	c := storagetest.StartCluster(t)
	rdb := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: c.URL()}).Redis
	s, _ := newStore(t, rdb)
	ctx := t.Context()
	var users []int64
	for user := int64(1); user <= 12; user++ {
		users = append(users, user)
	}
	// SQL has all ids up to committed. All ids up to delivered have been delivered.
	var committed, delivered atomic.Int64
	read := func(user int64) (ready bool) {
		t.Helper()
		due := delivered.Load()
		at, part, err := s.Visits.VisitPage(ctx, user, timeline.Range{Limit: inboxCap})
		require.NoError(t, err)
		if part.State == timeline.Ready {
			// A full page does not show older ids: an inbox may hold more than its cap.
			oldest := max(part.Floor, 1)
			if len(part.IDs) == inboxCap {
				oldest = max(oldest, part.IDs[inboxCap-1])
			}
			for _, id := range down(due, oldest) {
				require.Contains(t, part.IDs, id, "inbox of %d", user)
			}
			return true
		}
		if at.Epoch != 0 {
			return false
		}
		b, started, err := s.Feeds.Begin(ctx, timeline.Inbox(user))
		require.NoError(t, err)
		if started {
			ids, floor := down(committed.Load(), max(1, committed.Load()-inboxCap+1)), int64(0)
			if len(ids) == inboxCap {
				floor = ids[inboxCap-1]
			}
			if _, err = s.Feeds.Finish(ctx, &b, ids, floor); err != nil {
				require.ErrorIs(t, err, timeline.ErrBuildLost)
			}
		}
		return false
	}
	for _, user := range users {
		read(user)
	}
	epochs := map[int64]int64{}
	for _, user := range users {
		epochs[user] = coverage(t, s, timeline.Inbox(user)).Epoch
		require.NotZero(t, epochs[user])
	}

	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			id := committed.Add(1)
			if _, err := s.Inboxes.Deliver(ctx, id, users); err != nil {
				t.Errorf("deliver: %v", err)
				return
			}
			delivered.Store(id)
			read(users[int(id)%len(users)])
		}
	})
	addr := c.Grow(t)
	for _, user := range users {
		if user%2 == 0 {
			c.Move(t, inboxSet(user), addr)
		}
		if user%3 == 0 {
			c.Move(t, activeKey(user), addr)
		}
	}
	close(stop)
	load.Wait()
	for _, user := range users {
		for !read(user) {
			continue
		}
		if user%2 == 0 || user%3 == 0 {
			require.NotEqual(t, epochs[user], coverage(t, s, timeline.Inbox(user)).Epoch, "the inbox, or the activity, of %d moved: it is built anew", user)
		}
	}
	require.Greater(t, delivered.Load(), int64(0))
}

// Pushes that are running when Redis is wiped leave no key without an expiry.
func TestPushesAfterAWipeComeToAnEnd(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx := t.Context()
		var users []int64
		for user := int64(1); user <= 300; user++ {
			users = append(users, user)
		}
		ends := func(users []int64) {
			t.Helper()
			for _, user := range users {
				life, err := rdb.PTTL(ctx, inboxSet(user)).Result()
				require.NoError(t, err)
				require.NotEqual(t, time.Duration(-1), life, "the set of %d", user)
			}
		}
		wipe(t, rdb)
		require.NoError(t, s.Inboxes.Push(ctx, 1, users, func() {}))
		ends(users)
		require.NoError(t, s.Inboxes.Push(ctx, 2, users[:1], func() {}))
		ends(users)

		// Redis may lose only the inbox of a user who is active. Sweep visits the user, and once
		// more when the activity has expired.
		require.NoError(t, s.Visits.Touch(ctx, 1))
		orphan := redis.Z{Score: -1, Member: 1}
		require.NoError(t, rdb.ZAdd(ctx, "tl:{i1}:z", orphan).Err())
		require.NoError(t, rdb.Persist(ctx, inboxSet(1)).Err())
		_, err := s.Sweeper.Sweep(ctx)
		require.NoError(t, err)
		ends(users[:1])
		require.NoError(t, rdb.Persist(ctx, inboxSet(1)).Err())
		c.advance(timeline.DefaultActiveFor + 2*time.Hour)
		swept, err := s.Sweeper.Sweep(ctx)
		require.NoError(t, err)
		require.Equal(t, timeline.SweepResult{Expired: 1, Lost: 1, Complete: true}, swept)
		ends(users[:1])
	})
}
