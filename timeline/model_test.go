package timeline_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// TestPageNeverOmits runs random histories on one inbox and on a model of SQL. Whenever a reader
// finds the inbox Ready, it holds exactly the posts that SQL holds from the floor up, except posts
// that are not yet delivered.
func TestPageNeverOmits(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		var lastUser atomic.Int64
		rapid.Check(t, func(rt *rapid.T) {
			s, c := newStore(t, rdb)
			(&history{t: t, s: s, c: c, rdb: rdb, user: lastUser.Add(1), posts: map[int64]bool{}}).run(rt)
		})
	})
}

type history struct {
	t    *testing.T
	s    *timeline.Store
	c    *clock
	rdb  redisclient.Client
	user int64

	next    int64
	posts   map[int64]bool // SQL: a post of the feed, and whether it was delivered
	build   *timeline.Build
	reading []int64 // what the builder read
	floor   int64
}

func (h *history) run(rt *rapid.T) {
	ctx, k := h.t.Context(), timeline.Inbox(h.user)
	users := []int64{h.user}
	rt.Repeat(map[string]func(*rapid.T){
		"post": func(rt *rapid.T) {
			for range rapid.SampledFrom([]int{1, 3, 120}).Draw(rt, "posts") {
				h.next += rapid.Int64Range(1, 3).Draw(rt, "gap")
				h.posts[h.next] = false
			}
		},
		"deliver": func(rt *rapid.T) {
			// Workers deliver in any order, also late posts.
			var late []int64
			for id, delivered := range h.posts {
				if !delivered {
					late = append(late, id)
				}
			}
			slices.Sort(late)
			if rapid.Bool().Draw(rt, "newest first") {
				slices.Reverse(late)
			}
			for _, id := range late[:min(len(late), rapid.IntRange(0, 130).Draw(rt, "how many"))] {
				_, err := h.s.Inboxes.Deliver(ctx, id, users)
				require.NoError(rt, err)
				h.posts[id] = true
			}
		},
		"add": func(rt *rapid.T) {
			id := h.next + 1
			h.next = id
			h.posts[id] = true
			require.NoError(rt, h.s.Feeds.Add(ctx, k, id))
		},
		"follow": func(rt *rapid.T) {
			// The newest posts of an author with older ones are added.
			var older []int64
			for id := int64(1); id < h.next; id += 5 {
				if _, known := h.posts[id]; !known {
					h.posts[id] = true
					older = append(older, id)
				}
			}
			floor := int64(0)
			if n := rapid.IntRange(0, 40).Draw(rt, "brought in"); n < len(older) {
				older = older[len(older)-n:]
				floor = h.next
				if n > 0 {
					floor = older[0]
				}
			}
			require.NoError(rt, h.s.Feeds.Replace(ctx, h.user, nil, older, floor, rapid.Bool().Draw(rt, "invalidate")))
		},
		"remove": func(rt *rapid.T) {
			ids := h.ids()
			if len(ids) == 0 {
				return
			}
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			delete(h.posts, id)
			if rapid.Bool().Draw(rt, "by withdrawing") {
				require.NoError(rt, h.s.Inboxes.Withdraw(ctx, []int64{id}, users))
			} else {
				require.NoError(rt, h.s.Feeds.Remove(ctx, k, id))
			}
		},
		"begin": func(rt *rapid.T) {
			require.NoError(rt, h.s.Visits.Touch(ctx, h.user))
			if b, started, err := h.s.Feeds.Begin(ctx, k); started {
				require.NoError(rt, err)
				h.build = &b
				h.read(rt)
			}
		},
		"finish": func(rt *rapid.T) {
			if h.build == nil {
				return
			}
			ok, err := h.s.Feeds.Finish(ctx, h.build, h.reading, h.floor)
			switch {
			case err != nil:
				require.ErrorIs(rt, err, timeline.ErrBuildLost)
				h.build = nil
			case ok:
				h.build = nil
			default:
				h.read(rt)
			}
		},
		"sweep": func(rt *rapid.T) {
			_, err := h.s.Sweeper.Sweep(ctx)
			require.NoError(rt, err)
		},
		"wait": func(rt *rapid.T) {
			h.c.advance(rapid.SampledFrom([]time.Duration{time.Second, 11 * time.Second, 80 * time.Hour}).Draw(rt, "for"))
		},
		"drop": func(rt *rapid.T) {
			require.NoError(rt, h.s.Feeds.Drop(ctx, k))
		},
		"lose a key": func(rt *rapid.T) {
			require.NoError(rt, h.rdb.Del(ctx, rapid.SampledFrom([]string{
				inboxSet(h.user), inboxMeta(h.user), activeKey(h.user),
			}).Draw(rt, "key")).Err())
		},
		"": h.check,
	})
}

// read makes the builder read SQL: all of it, or its newest part.
func (h *history) read(rt *rapid.T) {
	h.reading, h.floor = h.ids(), 0
	if n := rapid.SampledFrom([]int{20, 300, 1000}).Draw(rt, "reads"); n < len(h.reading) {
		h.reading = h.reading[len(h.reading)-n:]
		h.floor = h.reading[0]
	}
}

func (h *history) ids() []int64 {
	ids := make([]int64, 0, len(h.posts))
	for id := range h.posts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (h *history) check(rt *rapid.T) {
	ctx, k := h.t.Context(), timeline.Inbox(h.user)
	require.NoError(rt, h.s.Visits.Touch(ctx, h.user))
	ascending := rapid.Bool().Draw(rt, "ascending")
	r := timeline.Range{Limit: rapid.SampledFrom([]int{150, 1000}).Draw(rt, "limit"), Ascending: ascending}
	got := map[int64]bool{}
	var cov timeline.Coverage
	for {
		ids, c, err := h.s.Feeds.Page(ctx, k, r)
		require.NoError(rt, err)
		if c.State != timeline.Ready {
			require.Empty(rt, ids)
			return
		}
		cov = c
		for _, id := range ids {
			require.False(rt, got[id], "id %d twice", id)
			require.GreaterOrEqual(rt, id, c.Floor)
			_, alive := h.posts[id]
			require.True(rt, alive, "id %d was removed", id)
			got[id] = true
		}
		if len(ids) < r.Limit {
			break
		}
		if last := ids[len(ids)-1]; ascending {
			r.After = last
		} else {
			r.Before = last
		}
	}
	for id, delivered := range h.posts {
		if delivered && id >= cov.Floor {
			require.True(rt, got[id], "id %d is missing, floor %d", id, cov.Floor)
		}
	}
	all, _, err := h.s.Feeds.Page(ctx, k, timeline.Range{Limit: 1 << 20})
	require.NoError(rt, err)
	require.Len(rt, all, len(got))
}
