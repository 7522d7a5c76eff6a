package timeline_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestWhatComesDuringABuildStays(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		b, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.True(t, started)
		_, err = s.Inboxes.Deliver(ctx, 30, []int64{1})
		require.NoError(t, err)
		require.NoError(t, s.Feeds.Add(ctx, k, 29, 5))
		ok, err := s.Feeds.Finish(ctx, &b, []int64{10, 9}, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []int64{30, 29, 10, 9, 5}, page(t, s, k, timeline.Range{Limit: 9}))

		// A repeated Finish, whose first answer was lost, succeeds.
		ok, err = s.Feeds.Finish(ctx, &b, []int64{10, 9}, 0)
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// A user returns with several concurrent requests. Each of them finds that the user is not active,
// and none drops the inbox that another has begun.
func TestReturningAtOnceBuildsOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, cluster bool) {
		s, c := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		build(t, s, k, []int64{1}, 0)
		for range 20 {
			c.advance(74 * time.Hour)
			var begun atomic.Int64
			var readers sync.WaitGroup
			for range 12 {
				readers.Go(func() {
					at, err := s.Visits.Visit(ctx, 1)
					if assert.NoError(t, err); at != (timeline.Position{}) {
						return
					}
					b, started, err := s.Feeds.Begin(ctx, k)
					if assert.NoError(t, err); !started {
						return
					}
					begun.Add(1)
					_, _ = s.Feeds.Finish(ctx, &b, []int64{1}, 0)
				})
			}
			readers.Wait()
			require.NotZero(t, begun.Load())
			if !cluster { // the nodes of a cluster answer in any order
				require.EqualValues(t, 1, begun.Load())
			}
			require.Equal(t, []int64{1}, page(t, s, k, timeline.Range{Limit: 9}))
		}
	})
}

func TestRemovalMakesTheBuilderReadAgain(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		require.NoError(t, s.Visits.Touch(ctx, 1))
		b, _, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		stale := []int64{3, 2, 1}

		// Removed from SQL and from the feed, before the builder adds it.
		require.NoError(t, s.Feeds.Remove(ctx, k, 2))
		ok, err := s.Feeds.Finish(ctx, &b, stale, 0)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, timeline.Building, coverage(t, s, k).State)

		// Redis has heard of the builder: it is not replaced while it reads again.
		c.advance(8 * time.Second)
		require.NoError(t, s.Inboxes.Withdraw(ctx, []int64{3}, []int64{1}))
		ok, err = s.Feeds.Finish(ctx, &b, []int64{3, 1}, 0)
		require.NoError(t, err)
		require.False(t, ok)
		c.advance(8 * time.Second)
		_, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.False(t, started)

		ok, err = s.Feeds.Finish(ctx, &b, []int64{1}, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []int64{1}, page(t, s, k, timeline.Range{Limit: 9}))
	})
}

func TestConcurrentBeginsBuildOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		var begun atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				b, started, err := s.Feeds.Begin(ctx, timeline.Inbox(1))
				assert.NoError(t, err)
				if !started {
					return
				}
				begun.Add(1)
				ok, err := s.Feeds.Finish(ctx, &b, []int64{1}, 0)
				assert.NoError(t, err)
				assert.True(t, ok)
			})
		}
		all.Wait()
		require.EqualValues(t, 1, begun.Load())
	})
}

func TestStaleBuildIsTakenOver(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		first, _, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		c.advance(9 * time.Second)
		_, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.False(t, started)
		c.advance(time.Second)
		second, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.True(t, started)

		require.Equal(t, first.Position(), second.Position(), "what a reader knows of the journal stays good")
		require.Equal(t, first.Coverage(), second.Coverage())

		require.NoError(t, s.Feeds.Remove(ctx, k, 1))
		ok, err := s.Feeds.Finish(ctx, &first, []int64{1}, 0)
		require.NoError(t, err)
		require.False(t, ok, "it has read what was removed since")
		ok, err = s.Feeds.Finish(ctx, &second, []int64{1, 2}, 0)
		require.NoError(t, err)
		require.False(t, ok)
		c.advance(10 * time.Second)
		third, started, err := s.Feeds.Begin(ctx, k)
		require.NoError(t, err)
		require.True(t, started)
		require.Equal(t, timeline.Position{Epoch: first.Position().Epoch, Offset: 1}, third.Position())
		ok, err = s.Feeds.Finish(ctx, &third, []int64{2}, 0)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = s.Feeds.Finish(ctx, &second, []int64{3}, 0)
		require.NoError(t, err)
		require.True(t, ok, "the other one was first")
		require.Equal(t, []int64{2}, page(t, s, k, timeline.Range{Limit: 9}))
	})
}

// truth is the content of the feed according to SQL.
type truth struct {
	mu  sync.Mutex
	ids map[int64]bool
}

func (tr *truth) set(id int64, there bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if there {
		tr.ids[id] = true
	} else {
		delete(tr.ids, id)
	}
}

// read returns all ids, the newest first.
func (tr *truth) read() []int64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ids := make([]int64, 0, len(tr.ids))
	for id := range tr.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// heal makes the feed Ready in the same steps as a reader; the package comment has them.
func heal(t testing.TB, s *timeline.Store, user int64, tr *truth) {
	k := timeline.Inbox(user)
	require.NoError(t, s.Visits.Touch(t.Context(), user))
	b, started, err := s.Feeds.Begin(t.Context(), k)
	require.NoError(t, err)
	for started {
		ok, err := s.Feeds.Finish(t.Context(), &b, tr.read(), 0)
		require.NoError(t, err)
		started = !ok
	}
}

func TestBuildAmongWritersEndsWithTheTruth(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		tr := &truth{ids: map[int64]bool{}}
		require.NoError(t, s.Visits.Touch(ctx, 1))
		var writers sync.WaitGroup
		for w := range int64(4) {
			writers.Go(func() {
				for i := range int64(40) {
					id := 1 + w + 4*i
					tr.set(id, true)
					_, err := s.Inboxes.Deliver(ctx, id, []int64{1})
					assert.NoError(t, err)
					switch i % 4 {
					case 1:
						tr.set(id, false)
						assert.NoError(t, s.Feeds.Remove(ctx, k, id))
					case 3:
						tr.set(id, false)
						assert.NoError(t, s.Inboxes.Withdraw(ctx, []int64{id}, []int64{1}))
					}
				}
			})
		}
		for range 10 {
			require.NoError(t, s.Feeds.Drop(ctx, k))
			heal(t, s, 1, tr)
		}
		writers.Wait()
		require.Equal(t, tr.read(), page(t, s, k, timeline.Range{Limit: 1000}))
	})
}

func TestWipeBetweenAnyTwoStepsHeals(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		var b timeline.Build
		var tr *truth
		steps := []func() error{
			func() error { return s.Visits.Touch(ctx, 1) },
			func() (err error) { tr.set(1, true); b, _, err = s.Feeds.Begin(ctx, k); return },
			func() (err error) { tr.set(2, true); _, err = s.Inboxes.Deliver(ctx, 2, []int64{1}); return },
			func() error { tr.set(3, true); return s.Feeds.Add(ctx, k, 3) },
			func() error { tr.set(1, false); return s.Feeds.Remove(ctx, k, 1) },
			func() (err error) { _, err = s.Feeds.Finish(ctx, &b, tr.read(), 0); return },
			func() (err error) { _, err = s.Feeds.Finish(ctx, &b, tr.read(), 0); return },
			func() (err error) { tr.set(4, true); _, err = s.Inboxes.Deliver(ctx, 4, []int64{1}); return },
			func() error { tr.set(2, false); return s.Inboxes.Withdraw(ctx, []int64{2}, []int64{1}) },
			func() (err error) { _, err = s.Sweeper.Sweep(ctx); return },
			func() error { return s.Visits.Touch(ctx, 1) },
		}
		for wiped := range len(steps) + 1 {
			wipe(t, rdb)
			tr = &truth{ids: map[int64]bool{}}
			for i, step := range steps {
				if i == wiped {
					wipe(t, rdb)
				}
				if err := step(); err != nil {
					require.ErrorIs(t, err, timeline.ErrBuildLost)
				}
			}
			if wiped == len(steps) {
				require.Equal(t, timeline.Ready, coverage(t, s, k).State, "without a wipe nothing is rebuilt")
			}
			heal(t, s, 1, tr)
			require.Equal(t, []int64{4, 3}, page(t, s, k, timeline.Range{Limit: 9}), "wiped before step %d", wiped)
			_, err := s.Inboxes.Deliver(ctx, 5, []int64{1})
			require.NoError(t, err)
			require.Equal(t, []int64{5, 4, 3}, page(t, s, k, timeline.Range{Limit: 9}))
		}
	})
}
