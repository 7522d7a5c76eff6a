package home_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
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
		down, _ := w.rankedWalk(author, "", 2, false, nil)
		require.Equal(w, want, down)
		up, _ := w.rankedWalk(author, "", 2, true, nil)
		slices.Reverse(want)
		require.Equal(w, want, up)
	})
}

// An operator changes the decay. A reader who began with another decay still sees every post
// once.
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
			all, _ := w.rankedWalk(ann, "", 1, false, nil)
			require.Equal(t, want, all, decay)

			restarted := w.Home
			w.Home = byDefault
			all, _ = w.rankedWalk(ann, "", 1, false, func() { w.Home = restarted })
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

func (w *world) ranked(v session.Viewer, by string, p paging.Page) (*paging.Connection[ent.Post], error) {
	return w.Home.TimelineWith(w.Ctx, v, p, home.Ranked, by, visibility.Likes)
}

// rankedWalk pages through the timeline in the ranking, up or down, and returns the posts of each
// page in the order of the walk. It also returns the last cursor.
func (w *world) rankedWalk(v session.Viewer, by string, size int, up bool, between func()) (all []int64, last *string) {
	w.Helper()
	for {
		p := paging.Page{First: &size, After: last}
		if up {
			p = paging.Page{Last: &size, Before: last}
		}
		c, err := w.ranked(v, by, p)
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

// A follow adds posts between two pages. The new posts push out no post that was there when the
// reader began.
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
			all, _ := w.rankedWalk(ann, "", 20, up, func() {
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

// Between two pages, posts are liked, unliked, written, or lost by Redis. No post is shown twice
// or skipped, in either direction.
func TestRankedStaysWhilePaging(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"", "near"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) { rankedStays(newRanking(t, s), by) })
		})
	}
}

// near is a ranking that reads every kind of signal: likes, affinity, time, data, own.
var near = "log10(max(likes, 1)) + 3 * affinity - age / 3600 + (data.boost > 1 ? data.boost : 0) + own"

// newRanking returns a running fixture with the rankings near and deal.
func newRanking(t *testing.T, s *storage.Stores) *world {
	w := newWorld(t, s, feedtest.Options{Policy: home.Policy{Rankings: map[string]string{"near": near, "deal": "data.price"}}})
	t.Cleanup(w.Work())
	return w
}

func rankedStays(w *world, by string) {
	u := w.Users(6)
	reader := u[0]
	authors := map[int64]session.Viewer{}
	var want []int64
	for _, author := range u[1:] {
		w.Follow(reader, author)
		for _, id := range w.History(author, 8) {
			want, authors[id] = append(want, id), author
		}
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
		id := want[rand.IntN(len(want))]
		_, err := w.Feed.UpdatePost(w.Ctx, authors[id], id, feed.Edit{Data: new(fmt.Sprintf(`{"boost":%d}`, rand.IntN(9)))})
		require.NoError(w, err)
		switch turn++; turn % 4 {
		case 1:
			w.Post(u[1+rand.IntN(5)], schema.Public)
		case 3:
			require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
		}
	}
	for _, size := range []int{4, 17} {
		down, last := w.rankedWalk(reader, by, size, false, shuffle)
		now := w.Timeline(reader, 100)
		began := now[len(now)-len(down):] // posts since then are above
		require.Equal(w, began, feedtest.NewestFirst(down...), fmt.Sprintf("pages of %d", size))

		// Back up from the last entry: every other entry comes once.
		hundred, one := 100, 1
		back, err := w.ranked(reader, by, paging.Page{Last: &hundred, Before: last})
		require.NoError(w, err)
		require.Equal(w, began, feedtest.NewestFirst(append(feedtest.PostIDs(back), down[len(down)-1])...))
		require.False(w, back.HasPreviousPage)
		// And down again from the middle.
		middle := &back.Edges[10].Cursor
		rest, err := w.ranked(reader, by, paging.Page{First: &hundred, After: middle})
		require.NoError(w, err)
		require.Equal(w, began, feedtest.NewestFirst(append(feedtest.PostIDs(rest), feedtest.PostIDs(back)[:11]...)...))

		up, _ := w.rankedWalk(reader, by, size, true, shuffle)
		now = w.Timeline(reader, 100)
		require.Equal(w, now[len(now)-len(up):], feedtest.NewestFirst(up...), fmt.Sprintf("upwards by %d", size))
		_, err = w.ranked(reader, by, paging.Page{First: &one, After: w.Top(reader)})
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err), "a cursor of the other order")
	}
}

// Each signal moves a post as the expression says. A post whose data lacks the number counts as
// 0.
func TestRankingsByName(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{Policy: home.Policy{Rankings: map[string]string{
			"deal": "data.price", "deep": "data.rating.mean", "near": "affinity", "mine": "own", "old": "age", "liked": "likes", "broken": "data.price / 0 - data.price / 0",
		}}})
		defer w.Work()()
		ann, bob, eve := w.User("ann"), w.User("bob"), w.User("eve")
		w.Follow(ann, bob)
		w.Follow(ann, eve)
		post := func(by session.Viewer, data string) int64 {
			p, err := w.Feed.CreatePost(w.Ctx, by, feed.Draft{Text: "x", Data: &data})
			require.NoError(t, err)
			return p.ID
		}
		cheap := post(bob, `{"price":5,"rating":{"mean":4.5}}`)
		dear := post(eve, `{"price":80.5,"rating":3}`)
		text := post(bob, `{"price":"90"}`)
		huge := post(bob, `{"price":1e301,"rating":{"mean":1}}`)
		own := post(ann, `{}`)
		like := func(v session.Viewer, id int64) {
			_, err := w.Feed.LikePost(w.Ctx, v, id)
			require.NoError(t, err)
		}
		like(ann, dear)
		like(bob, cheap)
		like(bob, own)
		like(eve, own)
		w.Drain()
		scores := func(v session.Viewer, by string) map[int64]float64 {
			c, err := w.ranked(v, by, paging.Page{})
			require.NoError(t, err)
			got := map[int64]float64{}
			for _, e := range c.Edges {
				got[e.Node.ID] = e.Score
			}
			return got
		}
		require.Equal(t, map[int64]float64{cheap: 5, dear: 80.5, text: 0, huge: 1e300, own: 0}, scores(ann, "deal"))
		require.Equal(t, map[int64]float64{cheap: 4.5, dear: 0, text: 0, huge: 1, own: 0}, scores(ann, "deep"))
		require.Equal(t, map[int64]float64{cheap: 0, dear: 0.2, text: 0, huge: 0, own: 0}, scores(ann, "near"))
		require.Equal(t, map[int64]float64{cheap: 0, dear: 0, text: 0, huge: 0, own: 1}, scores(ann, "mine"))
		require.Equal(t, map[int64]float64{cheap: 1, dear: 1, text: 0, huge: 0, own: 2}, scores(ann, "liked"))
		for _, score := range scores(ann, "broken") {
			require.Equal(t, -1e300, score, "JSON has no number for what is none")
		}
		byAge, _ := w.rankedWalk(ann, "old", 2, false, nil)
		require.Equal(t, []int64{cheap, dear, text, huge, own}, byAge)
		require.Equal(t, map[int64]float64{cheap: 0.2, text: 0.2, huge: 0.2}, scores(bob, "near"), "bob likes himself, and nobody is told whom others like")
		_, err := w.Feed.UnlikePost(w.Ctx, ann, dear)
		require.NoError(t, err)
		require.Zero(t, scores(ann, "near")[dear], "it is taken back")
	})
}

// A cursor is valid only for the ranking that made it.
func TestCursorsOfRankings(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newRanking(t, s)
		ann := w.User("ann")
		first := w.Post(ann, schema.Public)
		w.Post(ann, schema.Public)
		one := 1
		cursors := map[string]*string{}
		for _, by := range []string{"", "near", "deal"} {
			c, err := w.ranked(ann, by, paging.Page{First: &one})
			require.NoError(t, err)
			cursors[by] = &c.Edges[0].Cursor
			_, err = w.Home.Unread.MarkRead(w.Ctx, ann, c.Edges[0].Cursor)
			require.NoError(t, err, "it is read as any other")
		}
		for of, cursor := range cursors {
			for _, by := range []string{"", "hot", "near", "deal"} {
				for _, p := range []paging.Page{{After: cursor}, {Before: cursor}} {
					c, err := w.ranked(ann, by, p)
					if by == of || of == "" && by == "hot" {
						require.NoError(t, err)
						if p.After != nil {
							require.Equal(t, []int64{first}, feedtest.PostIDs(c))
						}
						continue
					}
					requireReason(t, refusal.NotACursor, "", err)
				}
			}
			_, err := w.Home.Timeline(w.Ctx, ann, paging.Page{After: cursor}, home.Latest)
			requireReason(t, refusal.NotACursor, "", err)
		}
		_, err := w.ranked(ann, "far", paging.Page{})
		requireReason(t, refusal.UnknownRanking, "ranking", err)
		_, err = w.Home.TimelineWith(w.Ctx, ann, paging.Page{}, home.Latest, "near", visibility.Likes)
		requireReason(t, refusal.NotRanked, "ranking", err)
	})
}

func requireReason(t *testing.T, want refusal.Reason, field string, err error) {
	t.Helper()
	var got *refusal.Error
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, got.Reason)
	require.Equal(t, field, got.Field)
}

// A process does not start with an invalid expression.
func TestRankingsAreCompiledAtTheStart(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		cfg := w.Home.Config()
		cfg.Rankings = map[string]string{"a": "liks", "b": "likes"}
		_, err := home.New(cfg)
		require.ErrorContains(t, err, `Rankings is not valid: ranking "a": at character 1: "liks" is no signal`)
	})
}
