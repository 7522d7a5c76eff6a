package home_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestRankedByLikesAgainstAge(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(12)
		author := u[0]
		var posts []int64
		for range 5 {
			posts = append(posts, w.Post(author, schema.Public))
		}
		for _, v := range u[1:] {
			_, err := w.Feed.LikePost(w.Ctx, v, posts[1])
			require.NoError(w, err)
		}
		for _, v := range u[1:4] {
			_, err := w.Feed.LikePost(w.Ctx, v, posts[3])
			require.NoError(w, err)
		}
		want := []int64{posts[1], posts[3], posts[4], posts[2], posts[0]}
		down, _ := w.rankedWalk(author, 2, false, nil)
		require.Equal(w, want, down)
		up, _ := w.rankedWalk(author, 2, true, nil)
		slices.Reverse(want)
		require.Equal(w, want, up)
	})
	day, decay := 24*time.Hour, 12*time.Hour+30*time.Minute
	now := ids.TimeOf(1 << 50)
	require.Greater(t, home.Weight(0, now, decay), home.Weight(50, now.Add(-day), decay), "a day outweighs fifty likes")
	require.Less(t, home.Weight(0, now, decay), home.Weight(1000, now.Add(-day), decay), "and not a thousand")
	require.InDelta(t, home.Weight(1, now, decay), home.Weight(10, now.Add(-decay), decay), 1e-9, "the decay outweighs ten times the likes")
	require.Less(t, home.Weight(0, now, 2*day), home.Weight(50, now.Add(-day), 2*day), "with a longer one fifty likes last a day")
}

// An operator tunes the order by the decay. A reader who began under another decay
// still sees every post once.
func TestRankDecay(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann := w.User("ann")
		liked, old, fresh := w.PostAged(ann, 24*time.Hour), w.PostAged(ann, 23*time.Hour), w.PostAged(ann, time.Hour)
		require.NoError(t, s.DB.Post.UpdateOneID(liked).SetLikeCount(50).Exec(w.Ctx))
		cfg := home.Config{
			DB: s.DB, Dialect: s.Dialect, Visibility: w.Visibility, Timelines: w.Timelines, Queue: w.Queue, Publisher: w.Publisher,
		}
		byDefault := w.Home
		for decay, want := range map[time.Duration][]int64{
			0:                             {fresh, liked, old},
			12*time.Hour + 30*time.Minute: {fresh, liked, old},
			time.Minute:                   {fresh, old, liked},
			8760 * time.Hour:              {liked, fresh, old},
		} {
			cfg.RankDecay = decay
			var err error
			w.Home, err = home.New(cfg)
			require.NoError(t, err)
			all, _ := w.rankedWalk(ann, 1, false, nil)
			require.Equal(t, want, all, decay)

			restarted := w.Home
			w.Home = byDefault
			all, _ = w.rankedWalk(ann, 1, false, func() { w.Home = restarted })
			left := slices.DeleteFunc(want, func(id int64) bool { return id == fresh })
			require.Equal(t, append([]int64{fresh}, left...), all, "what is left comes in the new order")
		}
		for _, decay := range []time.Duration{-time.Hour, time.Minute - 1, 8760*time.Hour + 1} {
			cfg.RankDecay = decay
			_, err := home.New(cfg)
			require.ErrorContains(t, err, "RankDecay is "+decay.String()+": it must be 1m0s to 8760h0m0s")
		}
	})
}

// rankedWalk pages through the ranked timeline, each page in the order of the walk.
// It also returns the last cursor.
func (w *world) rankedWalk(v account.Viewer, size int, up bool, between func()) (all []int64, last *string) {
	w.Helper()
	for {
		p := paging.Page{First: &size, After: last}
		if up {
			p = paging.Page{Last: &size, Before: last}
		}
		c, err := w.Home.Timeline(w.Ctx, v, p, home.Ranked)
		require.NoError(w, err)
		ids := feedtest.PostIDs(c)
		more, end := c.HasNextPage, len(ids)-1
		if up {
			slices.Reverse(ids)
			more, end = c.HasPreviousPage, 0
		}
		all, last = append(all, ids...), &c.Edges[end].Cursor
		if !more {
			return all, last
		}
		require.Len(w, ids, size, "a page is full while there is more")
		if between != nil {
			between()
		}
	}
}

// Posts that a follow adds between two pages push out no post that was there when
// the reader began.
func TestRankedFollowWhilePaging(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		want := w.History(bob, feedtest.InboxCap/2)
		others := w.Users(2)
		for _, other := range others {
			w.History(other, 100)
		}
		want = feedtest.NewestFirst(append(want, w.History(bob, feedtest.InboxCap/2)...)...)
		w.Drain()
		w.AwaitInbox(ann)
		for i, up := range []bool{false, true} {
			followed := false
			all, _ := w.rankedWalk(ann, 20, up, func() {
				if !followed {
					w.Follow(ann, others[i])
					w.Drain()
					followed = true
				}
			})
			all = feedtest.NewestFirst(all...)
			require.Equal(w, all, slices.Compact(slices.Clone(all)), "each once")
			require.Subset(w, all, want)
			_, err := w.Feed.Unfollow(w.Ctx, ann, others[i].ID)
			require.NoError(w, err)
			w.Drain()
		}
	})
}

// Between two pages posts are liked, unliked, written or lost by Redis: no post is
// shown twice and none is passed over, in both directions.
func TestRankedStaysWhilePaging(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(6)
		reader := u[0]
		var want []int64
		for _, author := range u[1:] {
			w.Follow(reader, author)
			want = append(want, w.History(author, 8)...)
		}
		want = feedtest.NewestFirst(want...)
		w.Drain()
		w.AwaitInbox(reader)
		turn := 0
		shuffle := func() {
			for range 6 {
				v, id := u[rand.IntN(len(u))], want[rand.IntN(len(want))]
				_, err := w.Feed.LikePost(w.Ctx, v, id)
				require.NoError(w, err)
				_, err = w.Feed.UnlikePost(w.Ctx, u[rand.IntN(len(u))], want[rand.IntN(len(want))])
				require.NoError(w, err)
			}
			switch turn++; turn % 4 {
			case 1:
				w.Post(u[1+rand.IntN(5)], schema.Public)
			case 3:
				require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
			}
		}
		for _, size := range []int{4, 17} {
			down, last := w.rankedWalk(reader, size, false, shuffle)
			now := w.Timeline(reader, 100)
			began := now[len(now)-len(down):] // posts since then are above
			require.Equal(w, began, feedtest.NewestFirst(down...), fmt.Sprintf("pages of %d", size))

			// Back up from the last entry: all other entries come once each.
			hundred, one := 100, 1
			back, err := w.Home.Timeline(w.Ctx, reader, paging.Page{Last: &hundred, Before: last}, home.Ranked)
			require.NoError(w, err)
			require.Equal(w, began, feedtest.NewestFirst(append(feedtest.PostIDs(back), down[len(down)-1])...))
			require.False(w, back.HasPreviousPage)
			// And down again from the middle.
			middle := &back.Edges[10].Cursor
			rest, err := w.Home.Timeline(w.Ctx, reader, paging.Page{First: &hundred, After: middle}, home.Ranked)
			require.NoError(w, err)
			require.Equal(w, began, feedtest.NewestFirst(append(feedtest.PostIDs(rest), feedtest.PostIDs(back)[:11]...)...))

			up, _ := w.rankedWalk(reader, size, true, shuffle)
			now = w.Timeline(reader, 100)
			require.Equal(w, now[len(now)-len(up):], feedtest.NewestFirst(up...), fmt.Sprintf("upwards by %d", size))
			_, err = w.Home.Timeline(w.Ctx, reader, paging.Page{First: &one, After: w.Top(reader)}, home.Ranked)
			require.Equal(w, refusal.BadInput, refusal.CodeOf(err), "a cursor of the other order")
		}
	})
}
