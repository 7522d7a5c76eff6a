package feed_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestRankedByLikesAgainstAge(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(12)
		author := u[0]
		var posts []int64
		for range 5 {
			posts = append(posts, w.post(author, schema.Public))
		}
		for _, v := range u[1:] {
			_, err := w.feed.LikePost(w.ctx, v, posts[1])
			require.NoError(w.t, err)
		}
		for _, v := range u[1:4] {
			_, err := w.feed.LikePost(w.ctx, v, posts[3])
			require.NoError(w.t, err)
		}
		want := []int64{posts[1], posts[3], posts[4], posts[2], posts[0]}
		down, _ := w.rankedWalk(author, 2, false, nil)
		require.Equal(w.t, want, down)
		up, _ := w.rankedWalk(author, 2, true, nil)
		slices.Reverse(want)
		require.Equal(w.t, want, up)
	})
	day, decay := 24*time.Hour, 12*time.Hour+30*time.Minute
	now := feed.TimeOf(1 << 50)
	require.Greater(t, feed.Weight(0, now, decay), feed.Weight(50, now.Add(-day), decay), "a day outweighs fifty likes")
	require.Less(t, feed.Weight(0, now, decay), feed.Weight(1000, now.Add(-day), decay), "and not a thousand")
	require.InDelta(t, feed.Weight(1, now, decay), feed.Weight(10, now.Add(-decay), decay), 1e-9, "the decay outweighs ten times the likes")
	require.Less(t, feed.Weight(0, now, 2*day), feed.Weight(50, now.Add(-day), 2*day), "with a longer one fifty likes last a day")
}

// An operator tunes the order by the decay. A reader who began under another sees
// every post once all the same.
func TestRankDecay(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s)
		ann := w.user("ann")
		liked, old, fresh := w.postAged(ann, 24*time.Hour), w.postAged(ann, 23*time.Hour), w.postAged(ann, time.Hour)
		require.NoError(t, s.DB.Post.UpdateOneID(liked).SetLikeCount(50).Exec(w.ctx))
		cfg := feed.Config{
			DB: s.DB, Dialect: s.Dialect, Timelines: w.tl, Queue: w.queue, Publisher: w.pub, InboxCap: inboxCap, OutboxCap: outboxCap,
		}
		byDefault := w.feed
		for decay, want := range map[time.Duration][]int64{
			0:                             {fresh, liked, old},
			12*time.Hour + 30*time.Minute: {fresh, liked, old},
			time.Minute:                   {fresh, old, liked},
			8760 * time.Hour:              {liked, fresh, old},
		} {
			cfg.RankDecay = decay
			var err error
			w.feed, err = feed.New(w.ctx, cfg)
			require.NoError(t, err)
			all, _ := w.rankedWalk(ann, 1, false, nil)
			require.Equal(t, want, all, decay)

			restarted := w.feed
			w.feed = byDefault
			all, _ = w.rankedWalk(ann, 1, false, func() { w.feed = restarted })
			left := slices.DeleteFunc(want, func(id int64) bool { return id == fresh })
			require.Equal(t, append([]int64{fresh}, left...), all, "what is left comes in the new order")
		}
		for _, decay := range []time.Duration{-time.Hour, time.Minute - 1, 8760*time.Hour + 1} {
			cfg.RankDecay = decay
			_, err := feed.New(w.ctx, cfg)
			require.ErrorContains(t, err, "rank decay must be 1m0s to 8760h0m0s, not "+decay.String())
		}
	})
}

// rankedWalk pages through the ranked timeline, each page in the order in which
// it is come to, and returns the last cursor too.
func (w *world) rankedWalk(v feed.Viewer, size int, up bool, between func()) (all []int64, last *string) {
	w.t.Helper()
	for {
		p := feed.Page{First: &size, After: last}
		if up {
			p = feed.Page{Last: &size, Before: last}
		}
		c, err := w.feed.Timeline(w.ctx, v, p, feed.Ranked)
		require.NoError(w.t, err)
		ids := postIDs(c)
		more, end := c.HasNextPage, len(ids)-1
		if up {
			slices.Reverse(ids)
			more, end = c.HasPreviousPage, 0
		}
		all, last = append(all, ids...), &c.Edges[end].Cursor
		if !more {
			return all, last
		}
		require.Len(w.t, ids, size, "a page is full while there is more")
		if between != nil {
			between()
		}
	}
}

// What comes in between two pages by a follow pushes nothing out that was there
// when the reader began.
func TestRankedFollowWhilePaging(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		want := w.history(bob, inboxCap/2)
		others := w.users(2)
		for _, other := range others {
			w.history(other, 100)
		}
		want = newestFirst(append(want, w.history(bob, inboxCap/2)...)...)
		w.settle()
		w.ready(ann)
		for i, up := range []bool{false, true} {
			followed := false
			all, _ := w.rankedWalk(ann, 20, up, func() {
				if !followed {
					w.follow(ann, others[i])
					w.settle()
					followed = true
				}
			})
			all = newestFirst(all...)
			require.Equal(w.t, all, slices.Compact(slices.Clone(all)), "each once")
			require.Subset(w.t, all, want)
			_, err := w.feed.Unfollow(w.ctx, ann, others[i].ID)
			require.NoError(w.t, err)
			w.settle()
		}
	})
}

// Whatever is liked, no longer liked, posted or lost by Redis between two pages,
// no post is shown twice and none is passed over, in both directions.
func TestRankedStaysWhilePaging(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(6)
		reader := u[0]
		var want []int64
		for _, author := range u[1:] {
			w.follow(reader, author)
			want = append(want, w.history(author, 8)...)
		}
		want = newestFirst(want...)
		w.settle()
		w.ready(reader)
		turn := 0
		shuffle := func() {
			for range 6 {
				v, id := u[rand.IntN(len(u))], want[rand.IntN(len(want))]
				_, err := w.feed.LikePost(w.ctx, v, id)
				require.NoError(w.t, err)
				_, err = w.feed.UnlikePost(w.ctx, u[rand.IntN(len(u))], want[rand.IntN(len(want))])
				require.NoError(w.t, err)
			}
			switch turn++; turn % 4 {
			case 1:
				w.post(u[1+rand.IntN(5)], schema.Public)
			case 3:
				require.NoError(w.t, w.s.Redis.FlushAll(w.ctx).Err())
			}
		}
		for _, size := range []int{4, 17} {
			down, last := w.rankedWalk(reader, size, false, shuffle)
			now := w.timeline(reader, 100)
			began := now[len(now)-len(down):] // what was posted since is above
			require.Equal(w.t, began, newestFirst(down...), fmt.Sprintf("pages of %d", size))

			// Back up from the last entry: all but that, once each.
			hundred, one := 100, 1
			back, err := w.feed.Timeline(w.ctx, reader, feed.Page{Last: &hundred, Before: last}, feed.Ranked)
			require.NoError(w.t, err)
			require.Equal(w.t, began, newestFirst(append(postIDs(back), down[len(down)-1])...))
			require.False(w.t, back.HasPreviousPage)
			// And down again from the middle.
			middle := &back.Edges[10].Cursor
			rest, err := w.feed.Timeline(w.ctx, reader, feed.Page{First: &hundred, After: middle}, feed.Ranked)
			require.NoError(w.t, err)
			require.Equal(w.t, began, newestFirst(append(postIDs(rest), postIDs(back)[:11]...)...))

			up, _ := w.rankedWalk(reader, size, true, shuffle)
			now = w.timeline(reader, 100)
			require.Equal(w.t, now[len(now)-len(up):], newestFirst(up...), fmt.Sprintf("upwards by %d", size))
			_, err = w.feed.Timeline(w.ctx, reader, feed.Page{First: &one, After: w.top(reader)}, feed.Ranked)
			require.Equal(w.t, feed.BadInput, feed.CodeOf(err), "a cursor of the other order")
		}
	})
}
