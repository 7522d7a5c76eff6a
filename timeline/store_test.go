package timeline_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

const (
	inboxCap  = 300
	outboxCap = 100
)

// clock is a clock that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newStore(t testing.TB, rdb redisclient.Client) (*timeline.Store, *clock) {
	t.Helper()
	c := newClock()
	s, err := timeline.New(rdb, timeline.Config{InboxCap: inboxCap, OutboxCap: outboxCap, Now: c.Now})
	require.NoError(t, err)
	return s, c
}

// build makes the feed Ready with the ids.
func build(t testing.TB, s *timeline.Store, k timeline.Key, ids []int64, floor int64) {
	t.Helper()
	ctx := t.Context()
	b, started, err := s.Feeds.Begin(ctx, k)
	require.NoError(t, err)
	require.True(t, started)
	ok, err := s.Feeds.Finish(ctx, &b, ids, floor)
	require.NoError(t, err)
	require.True(t, ok)
}

// page reads the feed and requires it to be Ready.
func page(t testing.TB, s *timeline.Store, k timeline.Key, r timeline.Range) []int64 {
	t.Helper()
	ids, cov, err := s.Feeds.Page(t.Context(), k, r)
	require.NoError(t, err)
	require.Equal(t, timeline.Ready, cov.State)
	return ids
}

func coverage(t testing.TB, s *timeline.Store, k timeline.Key) timeline.Coverage {
	t.Helper()
	ids, cov, err := s.Feeds.Page(t.Context(), k, timeline.Range{})
	require.NoError(t, err)
	require.Empty(t, ids)
	return cov
}

// down is from, from-1, ... to.
func down(from, to int64) []int64 {
	ids := []int64{}
	for id := from; id >= to; id-- {
		ids = append(ids, id)
	}
	return ids
}

func TestConfigIsRefusedWithWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  timeline.Config
		want string
	}{
		{timeline.Config{InboxCap: 20}, "InboxCap is 20: it must be 300 to 1000"},
		{timeline.Config{InboxCap: 1001}, "InboxCap is 1001: it must be 300 to 1000"},
		{timeline.Config{OutboxCap: -1}, "OutboxCap is -1: it must be 100 to 10000"},
		{timeline.Config{ActiveFor: time.Second}, "ActiveFor is 1s: it must be 1m0s to 8760h0m0s"},
		{timeline.Config{InboxCap: 1, OutboxCap: 1}, "InboxCap is 1: it must be 300 to 1000\nOutboxCap is 1: it must be 100 to 10000"},
	} {
		_, err := timeline.New(nil, c.cfg)
		require.EqualError(t, err, c.want)
	}
	for _, cfg := range []timeline.Config{{}, {InboxCap: 300, OutboxCap: 10000, ActiveFor: time.Minute}} {
		_, err := timeline.New(nil, cfg)
		require.NoError(t, err)
	}
}

func TestPagesMeetExactlyAtTheirBorders(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		// Neighbours at the end of the exact range: no id may be rounded.
		const newestID = 1<<53 - 1
		const oldestID = newestID - 49
		k := timeline.Outbox(7)
		build(t, s, k, down(newestID, oldestID), 0)

		require.Equal(t, down(newestID, oldestID), page(t, s, k, timeline.Range{Limit: 100}))
		require.Equal(t, []int64{oldestID, oldestID + 1}, page(t, s, k, timeline.Range{Limit: 2, Ascending: true}))
		require.Empty(t, page(t, s, k, timeline.Range{Before: oldestID, Limit: 9}))
		require.Empty(t, page(t, s, k, timeline.Range{After: newestID, Limit: 9, Ascending: true}))
		require.Equal(t, []int64{oldestID + 2, oldestID + 1},
			page(t, s, k, timeline.Range{Before: oldestID + 3, After: oldestID, Limit: 9}))
		require.Equal(t, []int64{oldestID + 1},
			page(t, s, k, timeline.Range{Before: oldestID + 3, After: oldestID, Limit: 1, Ascending: true}))

		for _, size := range []int{1, 7, 50} {
			var got []int64
			for r := (timeline.Range{Limit: size}); ; r.Before = got[len(got)-1] {
				ids := page(t, s, k, r)
				if got = append(got, ids...); len(ids) < size {
					break
				}
			}
			require.Equal(t, down(newestID, oldestID), got)

			got = nil
			for r := (timeline.Range{Limit: size, Ascending: true}); ; r.After = got[len(got)-1] {
				ids := page(t, s, k, r)
				if got = append(got, ids...); len(ids) < size {
					break
				}
			}
			require.Len(t, got, 50)
			require.IsIncreasing(t, got)
		}

		require.Len(t, page(t, s, k, timeline.Range{After: oldestID + 1, Limit: 100}), 48)
	})
}

func TestBoundsAndIDsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		_, _, err := s.Feeds.Page(ctx, k, timeline.Range{Limit: -1})
		require.ErrorContains(t, err, "page of tl:{i1}: negative bound")
		_, _, err = s.Feeds.Page(ctx, k, timeline.Range{After: -1})
		require.ErrorContains(t, err, "negative bound")
		require.ErrorContains(t, s.Feeds.Add(ctx, k, 0), "add to tl:{i1}: post id 0 is not within 1 to 9007199254740991")
		require.ErrorContains(t, s.Feeds.Remove(ctx, k, -4), "post id -4")
		require.ErrorContains(t, s.Inboxes.Withdraw(ctx, []int64{1 << 53}, []int64{1}), "post id 9007199254740992")
		_, err = s.Inboxes.Deliver(ctx, 0, []int64{1})
		require.ErrorContains(t, err, "post id 0")
		b, _, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		_, err = s.Feeds.Finish(ctx, &b, []int64{0}, 0)
		require.ErrorContains(t, err, "post id 0")
	})
}

func TestCoverage(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		require.Equal(t, timeline.Coverage{}, coverage(t, s, k))

		// Writes to a missing feed leave it missing.
		require.NoError(t, s.Feeds.Add(ctx, k, 5))
		require.NoError(t, s.Feeds.Remove(ctx, k, 5))
		pushed, err := s.Inboxes.Deliver(ctx, 6, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{1}, pushed)
		ids, cov, err := s.Feeds.Page(ctx, k, timeline.Range{Limit: 9})
		require.NoError(t, err)
		require.Empty(t, ids)
		require.Equal(t, timeline.Coverage{}, cov)

		b, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.True(t, started)
		require.NoError(t, s.Feeds.Add(ctx, k, 20))
		ids, cov, err = s.Feeds.Page(ctx, k, timeline.Range{Limit: 9})
		require.NoError(t, err)
		require.Empty(t, ids, "only a ready feed is read")
		require.Equal(t, timeline.Building, cov.State)

		ok, err := s.Feeds.Finish(ctx, &b, []int64{12, 10, 11}, 10)
		require.NoError(t, err)
		require.True(t, ok)
		first := coverage(t, s, k)
		require.Equal(t, timeline.Ready, first.State)
		require.EqualValues(t, 10, first.Floor)

		// Ids below the floor are unknown, whatever the set holds.
		_, err = s.Inboxes.Deliver(ctx, 9, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{20, 12, 11, 10}, page(t, s, k, timeline.Range{Limit: 9}))
		require.Equal(t, []int64{10}, page(t, s, k, timeline.Range{Limit: 1, Ascending: true}))
		require.Empty(t, page(t, s, k, timeline.Range{Before: 10, Limit: 9}))
		require.Len(t, page(t, s, k, timeline.Range{After: 2, Limit: 9}), 4)

		// A ready feed is not built twice; dropped, it has a new epoch.
		_, started, err = s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.False(t, started)
		require.NoError(t, s.Feeds.Drop(ctx, k))
		require.Equal(t, timeline.Missing, coverage(t, s, k).State)
		build(t, s, k, nil, 0)
		require.NotEqual(t, first.Epoch, coverage(t, s, k).Epoch)
	})
}

func TestFloorAboveAllIDs(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		k := timeline.Outbox(1)
		build(t, s, k, []int64{5}, 50)
		require.Empty(t, page(t, s, k, timeline.Range{Limit: 9}))
		require.NoError(t, s.Feeds.Add(t.Context(), k, 50, 51))
		require.Equal(t, []int64{51, 50}, page(t, s, k, timeline.Range{Limit: 9}))
	})
}

func TestEmptyFeedIsRemembered(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		build(t, s, k, nil, 0)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		require.Empty(t, page(t, s, k, timeline.Range{Limit: 9}))
		require.Empty(t, page(t, s, k, timeline.Range{Limit: 9, Ascending: true}))
		_, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.False(t, started)

		// A feed that is emptied again is still known to be empty.
		_, err = s.Inboxes.Deliver(ctx, 3, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []int64{3}, page(t, s, k, timeline.Range{Limit: 9}))
		require.NoError(t, s.Feeds.Remove(ctx, k, 3))
		require.Empty(t, page(t, s, k, timeline.Range{Limit: 9}))
	})
}

func TestLosingEitherKeyMakesTheFeedMissing(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		for _, key := range []string{"tl:{i1}:m", "tl:{i1}:z"} {
			for _, during := range []bool{false, true} {
				require.NoError(t, s.Feeds.Drop(ctx, k))
				b, started, err := s.Feeds.Begin(ctx, k)
				require.NoError(t, err)
				require.True(t, started)
				if !during {
					_, err = s.Feeds.Finish(ctx, &b, []int64{1, 2}, 0)
					require.NoError(t, err)
				}
				require.NoError(t, rdb.Del(ctx, key).Err())
				_, err = s.Inboxes.Deliver(ctx, 3, []int64{1})
				require.NoError(t, err)
				require.NoError(t, s.Feeds.Add(ctx, k, 4))
				require.Equal(t, timeline.Missing, coverage(t, s, k).State)
				_, err = s.Feeds.Finish(ctx, &b, []int64{1, 2}, 0)
				require.ErrorIs(t, err, timeline.ErrBuildLost)
				build(t, s, k, []int64{1, 2, 3}, 0)
				require.Equal(t, []int64{3, 2, 1}, page(t, s, k, timeline.Range{Limit: 9}))
			}
		}
	})
}

func TestCapAndFloor(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()

		t.Run("a build is cut to the cap", func(t *testing.T) {
			k := timeline.Outbox(1)
			b, _, err := s.Feeds.Begin(ctx, k)
			require.NoError(t, err)
			require.NoError(t, s.Feeds.Add(ctx, k, 151))
			ok, err := s.Feeds.Finish(ctx, &b, down(150, 1), 0)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, down(151, 52), page(t, s, k, timeline.Range{Limit: 200}))
			require.EqualValues(t, 52, coverage(t, s, k).Floor)
		})
		t.Run("exactly the cap is complete", func(t *testing.T) {
			k := timeline.Outbox(2)
			build(t, s, k, down(100, 1), 0)
			require.Equal(t, down(100, 1), page(t, s, k, timeline.Range{Limit: 200}))
			require.Zero(t, coverage(t, s, k).Floor)
		})
		t.Run("adds are trimmed past the slack", func(t *testing.T) {
			k := timeline.Outbox(3)
			build(t, s, k, down(100, 1), 0)
			for id := int64(101); id <= 110; id++ {
				require.NoError(t, s.Feeds.Add(ctx, k, id))
			}
			require.Equal(t, down(110, 1), page(t, s, k, timeline.Range{Limit: 200}))
			require.NoError(t, s.Feeds.Add(ctx, k, 111))
			require.Equal(t, down(111, 12), page(t, s, k, timeline.Range{Limit: 200}))
			require.EqualValues(t, 12, coverage(t, s, k).Floor)
		})
		t.Run("what lies below the floor does not lower it", func(t *testing.T) {
			k := timeline.Outbox(4)
			build(t, s, k, down(200, 120), 120)
			require.NoError(t, s.Feeds.Add(ctx, k, down(90, 1)...))
			require.Equal(t, down(200, 120), page(t, s, k, timeline.Range{Limit: 200}))
			require.EqualValues(t, 120, coverage(t, s, k).Floor)
		})
		t.Run("merging part of a list raises the floor", func(t *testing.T) {
			k := timeline.Inbox(5)
			build(t, s, k, []int64{90, 50, 3}, 0)
			require.NoError(t, s.Feeds.Replace(ctx, 5, nil, []int64{80, 70, 60}, 60, false))
			require.Equal(t, []int64{90, 80, 70, 60}, page(t, s, k, timeline.Range{Limit: 9}))
			require.EqualValues(t, 60, coverage(t, s, k).Floor)
			require.NoError(t, s.Feeds.Replace(ctx, 5, nil, []int64{40}, 40, false))
			require.EqualValues(t, 60, coverage(t, s, k).Floor)
		})
		t.Run("merging during a build raises the floor", func(t *testing.T) {
			k := timeline.Inbox(6)
			b, _, err := s.Feeds.Begin(ctx, k)
			require.NoError(t, err)
			require.NoError(t, s.Feeds.Replace(ctx, 6, nil, []int64{80, 70}, 70, false))
			ok, err := s.Feeds.Finish(ctx, &b, []int64{75, 60}, 0)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, []int64{80, 75, 70}, page(t, s, k, timeline.Range{Limit: 9}))
		})
		t.Run("adding more than the cap keeps the newest", func(t *testing.T) {
			k := timeline.Outbox(7)
			build(t, s, k, []int64{1}, 0)
			require.NoError(t, s.Feeds.Add(ctx, k, down(500, 2)...))
			require.Equal(t, down(500, 401), page(t, s, k, timeline.Range{Limit: 200}))
			require.EqualValues(t, 401, coverage(t, s, k).Floor)
		})
		t.Run("deliveries are trimmed now and then", func(t *testing.T) {
			const user = 8
			k := timeline.Inbox(user)
			require.NoError(t, s.Visits.Touch(ctx, user))
			build(t, s, k, nil, 0)
			for id := int64(1); id <= 1000; id++ {
				_, err := s.Inboxes.Deliver(ctx, id, []int64{user})
				require.NoError(t, err)
			}
			floor := coverage(t, s, k).Floor
			require.NotZero(t, floor)
			ids := page(t, s, k, timeline.Range{Limit: 1000})
			require.Equal(t, down(1000, floor), ids)
			require.GreaterOrEqual(t, len(ids), inboxCap)
			require.LessOrEqual(t, len(ids), inboxCap+inboxCap/10+64)
		})
	})
}

func TestScriptsHealAfterBeingForgotten(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		var users []int64
		for user := int64(1); user <= 50; user++ {
			users = append(users, user)
			require.NoError(t, s.Visits.Touch(ctx, user))
			build(t, s, timeline.Inbox(user), []int64{1, 2}, 0)
		}
		forgetScripts(t, rdb)
		require.NoError(t, s.Inboxes.Withdraw(ctx, []int64{1}, users))
		forgetScripts(t, rdb)
		for _, user := range users {
			require.Equal(t, []int64{2}, page(t, s, timeline.Inbox(user), timeline.Range{Limit: 9}))
		}
	})
}

func TestFailureSaysWhatFailed(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	require.NoError(t, rdb.Close())
	s, _ := newStore(t, rdb)
	ctx := t.Context()
	_, _, err := s.Feeds.Page(ctx, timeline.Inbox(1), timeline.Range{Limit: 1})
	require.ErrorContains(t, err, "page of tl:{i1}: ")
	_, err = s.Inboxes.Deliver(ctx, 1, []int64{1})
	require.ErrorContains(t, err, "deliver post 1: ")
	require.ErrorContains(t, s.Visits.Touch(ctx, 1), "visit of user 1: ")
	_, err = s.Sweeper.Sweep(ctx)
	require.ErrorContains(t, err, "sweep: ")
}
