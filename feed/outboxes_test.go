package feed_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// reads counts the reads of feeds that Redis had, and those that SQL answered.
type reads struct{ hits, misses atomic.Int64 }

func (r *reads) observe(hit bool) {
	if hit {
		r.hits.Add(1)
	} else {
		r.misses.Add(1)
	}
}

// climb pages through the whole timeline, upwards.
func (w *world) climb(v feed.Viewer, size int) (all []int64) {
	w.t.Helper()
	page, err := w.feed.Timeline(w.ctx, v, feed.Page{Last: &size}, feed.Latest)
	for {
		require.NoError(w.t, err)
		all = append(postIDs(page), all...)
		if !page.HasPreviousPage {
			return all
		}
		page, err = w.feed.Timeline(w.ctx, v, feed.Page{Last: &size, Before: &page.Edges[0].Cursor}, feed.Latest)
	}
}

// A timeline put together from the few of many outboxes that reach each page is
// what SQL has, post by post: beside an inbox, where some authors are not pushed,
// and without one, where nobody is.
func TestOutboxesThatReachThePage(t *testing.T) {
	t.Parallel()
	for name, above := range map[string]int{"beside an inbox": 1, "always pull": feed.AlwaysPull} {
		t.Run(name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				var reads reads
				w := newWorld(t, s, func(c *feed.Config) {
					c.PullAbove, c.PushAndPullFor, c.MergedListFor, c.MergeAll = above, -time.Second, time.Nanosecond, 2
					c.Observe = reads.observe
				})
				w.work()
				testOutboxes(w, &reads)
			})
		})
	}
}

func testOutboxes(w *world, reads *reads) {
	u := w.users(14)
	reader, second, pushed, stars := u[0], u[1], u[2], u[3:]
	for _, star := range stars {
		w.follow(reader, star)
		w.follow(second, star)
	}
	w.follow(reader, pushed)
	w.rebalance()
	w.rebalance()
	w.settle()
	require.Equal(w.t, user.FanOutModePULL, w.fanOutMode(stars[0]))

	all := w.history(stars[0], outboxCap+30) // more than an outbox keeps
	for range 2 {
		for _, star := range stars[:10] { // the last one never posts
			all = append(all, w.history(star, 3)...)
		}
		all = append(all, w.history(reader, 2)...)
	}
	same := func(stage string) {
		w.t.Helper()
		want := newestFirst(all...)
		for _, size := range []int{1, 4} { // fewer than there are authors
			var got []int64
			var after *string
			for range 5 {
				c, err := w.feed.Timeline(w.ctx, reader, feed.Page{First: &size, After: after}, feed.Latest)
				require.NoError(w.t, err)
				require.Len(w.t, c.Edges, size, stage)
				got, after = append(got, postIDs(c)...), &c.Edges[size-1].Cursor
			}
			require.Equal(w.t, want[:5*size], got, stage)
		}
		require.Equal(w.t, want, w.walk(reader, 83, nil), stage)
	}
	// warm reads until Redis alone answers a first page.
	warm := func() {
		w.t.Helper()
		require.Eventually(w.t, func() bool {
			hits, misses := reads.hits.Load(), reads.misses.Load()
			w.timeline(reader, 4)
			return reads.hits.Load() > hits && reads.misses.Load() == misses
		}, 30*time.Second, 5*time.Millisecond)
	}
	same("cold")
	warm()
	same("warm")
	require.Equal(w.t, newestFirst(all...), w.climb(reader, 97), "upwards")

	create := func(author feed.Viewer, v schema.Visibility) int64 {
		w.t.Helper()
		id := w.post(author, v)
		w.settle()
		return id
	}
	all = append(all, create(stars[10], schema.Public), create(pushed, schema.Public), create(stars[3], schema.Followers))
	create(stars[4], schema.Mutuals)
	create(stars[5], schema.Private)
	same("posted, some hidden from the reader")
	own := w.post(reader, schema.Private)
	require.Equal(w.t, own, w.timeline(reader, 1)[0], "read your own write")
	all = append(all, own)

	// Deleted posts leave what Redis knows of their authors too high.
	for _, star := range stars[1:9] {
		gone := create(star, schema.Public)
		require.NoError(w.t, w.feed.DeletePost(w.ctx, star, gone))
	}
	w.settle()
	same("newest posts deleted")
	warm()

	outbox := timeline.Outbox(stars[2].ID).String()
	require.NoError(w.t, w.s.Redis.Del(w.ctx, outbox+":z").Err())
	require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Outbox(stars[6].ID)))
	same("some outboxes missing")
	warm()
	for shard := range 8 {
		require.NoError(w.t, w.s.Redis.Del(w.ctx, "tl:{n"+string(rune('0'+shard))+"}").Err())
	}
	all = append(all, create(stars[7], schema.Public), create(stars[8], schema.Public))
	same("some newest ids missing")
	storagetest.Wipe(w.t, w.s)
	same("wiped")
	warm()
	all = append(all, create(stars[10], schema.Public))
	same("and healed")

	_, err := w.feed.Mute(w.ctx, reader, stars[10].ID)
	require.NoError(w.t, err)
	require.NotContains(w.t, w.timeline(reader, 60), all[len(all)-1])
	_, err = w.feed.Unmute(w.ctx, reader, stars[10].ID)
	require.NoError(w.t, err)
	w.settle()
	same("muted and unmuted")
}
