package home_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// reads counts the hits and misses of reads of feeds.
type reads struct{ hits, misses atomic.Int64 }

func (r *reads) observe(hit bool) {
	if hit {
		r.hits.Add(1)
	} else {
		r.misses.Add(1)
	}
}

// climb pages through the whole timeline, from the oldest post to the newest.
func (w *world) climb(v session.Viewer, size int) (all []int64) {
	w.Helper()
	page, err := w.Home.Timeline(w.Ctx, v, paging.Page{Last: &size}, home.Latest)
	for {
		require.NoError(w, err)
		all = append(feedtest.PostIDs(page), all...)
		if !page.HasPreviousPage {
			return all
		}
		page, err = w.Home.Timeline(w.Ctx, v, paging.Page{Last: &size, Before: &page.Edges[0].Cursor}, home.Latest)
	}
}

// A timeline that merges only the outboxes that reach each page equals the timeline in SQL, post
// by post: beside an inbox, if some authors are not pushed, and without an inbox, if no author is
// pushed.
func TestOutboxesThatReachThePage(t *testing.T) {
	t.Parallel()
	for name, above := range map[string]int{"beside an inbox": 1, "always pull": home.AlwaysPull} {
		t.Run(name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				var reads reads
				w := newWorld(t, s, feedtest.Options{
					Policy:  home.Policy{PullAbove: above, PushAndPullFor: -time.Second, MergedListFor: time.Nanosecond, MergeAll: 2},
					Observe: reads.observe,
				})
				w.Work()
				testOutboxes(w, &reads)
			})
		})
	}
}

// A read that more outboxes reach than it may merge comes from SQL, and is counted as one.
func TestAReadOfTooManyOutboxesIsObserved(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var reads reads
		w := newWorld(t, s, feedtest.Options{Policy: home.Policy{PullAbove: home.AlwaysPull, MergeAll: 2}, Observe: reads.observe})
		reader, authors := w.User("reader"), w.Users(1001)
		_, err := w.Stores.SQL.ExecContext(w.Ctx, "INSERT INTO follows (follower_id, followee_id, created_at) SELECT $1, id, CURRENT_TIMESTAMP FROM users WHERE id <> $1", reader.ID)
		require.NoError(w, err)
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "INSERT INTO posts (id, author_id, text, visibility) SELECT id, id, 'text', 'PUBLIC' FROM users WHERE id <> $1", reader.ID)
		require.NoError(w, err)
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "UPDATE users SET last_post_id = id WHERE id <> $1", reader.ID)
		require.NoError(w, err)
		page, err := w.Home.Timeline(w.Ctx, reader, paging.Page{Last: new(3)}, home.Latest)
		require.NoError(w, err)
		require.Equal(w, []int64{authors[2].ID, authors[1].ID, authors[0].ID}, feedtest.PostIDs(page))
		require.Zero(w, reads.hits.Load())
		require.Positive(w, reads.misses.Load())
	})
}

func testOutboxes(w *world, reads *reads) {
	u := w.Users(14)
	reader, second, pushed, stars := u[0], u[1], u[2], u[3:]
	for _, star := range stars {
		w.Follow(reader, star)
		w.Follow(second, star)
	}
	w.Follow(reader, pushed)
	w.rebalance(stars...)
	w.rebalance(stars...)
	w.Drain()
	require.Equal(w, user.FanOutModePULL, w.fanOutMode(stars[0]))

	all := w.History(stars[0], feedtest.OutboxCap+30) // more posts than an outbox holds
	for range 2 {
		for _, star := range stars[:10] { // the last one never posts
			all = append(all, w.History(star, 3)...)
		}
		all = append(all, w.History(reader, 2)...)
	}
	same := func(stage string) {
		w.Helper()
		want := feedtest.NewestFirst(all...)
		for _, size := range []int{1, 4} { // fewer than there are authors
			var got []int64
			var after *string
			for range 5 {
				c, err := w.Home.Timeline(w.Ctx, reader, paging.Page{First: &size, After: after}, home.Latest)
				require.NoError(w, err)
				require.Len(w, c.Edges, size, stage)
				got, after = append(got, feedtest.PostIDs(c)...), &c.Edges[size-1].Cursor
			}
			require.Equal(w, want[:5*size], got, stage)
		}
		require.Equal(w, want, w.Walk(reader, 83, nil), stage)
	}
	// warm reads until Redis alone answers a first page.
	warm := func() {
		w.Helper()
		require.Eventually(w, func() bool {
			hits, misses := reads.hits.Load(), reads.misses.Load()
			w.Timeline(reader, 4)
			return reads.hits.Load() > hits && reads.misses.Load() == misses
		}, 30*time.Second, 5*time.Millisecond)
	}
	same("cold")
	warm()
	same("warm")
	require.Equal(w, feedtest.NewestFirst(all...), w.climb(reader, 97), "upwards")

	create := func(author session.Viewer, v schema.Visibility) int64 {
		w.Helper()
		id := w.Post(author, v)
		w.Drain()
		return id
	}
	all = append(all, create(stars[10], schema.Public), create(pushed, schema.Public), create(stars[3], schema.Followers))
	create(stars[4], schema.Mutuals)
	create(stars[5], schema.Private)
	same("posted, some hidden from the reader")
	own := w.Post(reader, schema.Private)
	require.Equal(w, own, w.Timeline(reader, 1)[0], "read your own write")
	all = append(all, own)

	// Deleted posts leave the latest post ids in Redis too high.
	for _, star := range stars[1:9] {
		gone := create(star, schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, star, gone))
	}
	w.Drain()
	same("newest posts deleted")
	warm()

	outbox := timeline.Outbox(stars[2].ID).String()
	require.NoError(w, w.Stores.Redis.Del(w.Ctx, outbox+":z").Err())
	require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Outbox(stars[6].ID)))
	same("some outboxes missing")
	warm()
	for shard := range 8 {
		require.NoError(w, w.Stores.Redis.Del(w.Ctx, "tl:{n"+string(rune('0'+shard))+"}").Err())
	}
	all = append(all, create(stars[7], schema.Public), create(stars[8], schema.Public))
	same("some newest ids missing")
	storagetest.Wipe(w, w.Stores)
	same("wiped")
	warm()
	all = append(all, create(stars[10], schema.Public))
	same("and healed")

	_, err := w.Feed.Mute(w.Ctx, reader, stars[10].ID)
	require.NoError(w, err)
	require.NotContains(w, w.Timeline(reader, 60), all[len(all)-1])
	_, err = w.Feed.Unmute(w.Ctx, reader, stars[10].ID)
	require.NoError(w, err)
	w.Drain()
	same("muted and unmuted")
}
