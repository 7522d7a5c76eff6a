package stream_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// flood writes n posts of the authors, in turn, and fans them out to nobody. Their ids are spread
// over the given time before now. It returns them oldest first.
func (w *world) flood(n int, over time.Duration, authors ...session.Viewer) (posts []int64) {
	w.Helper()
	step := over.Milliseconds() << 12 / int64(n)
	var rows []*ent.PostCreate
	for i := range n {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		posts = append(posts, id-int64(n-1-i)*step)
		rows = append(rows, w.Stores.DB.Post.Create().SetID(posts[i]).SetAuthorID(authors[i%len(authors)].ID).
			SetText("busy").SetVisibility(schema.Public))
	}
	for some := range slices.Chunk(rows, 500) {
		require.NoError(w, w.Stores.DB.Post.CreateBulk(some...).Exec(w.Ctx))
	}
	for _, author := range authors {
		w.Posted(author)
	}
	return posts
}

// quietAfter checks that a client that resumes after the position receives nothing.
func (w *world) quietAfter(v session.Viewer, position, why string) {
	w.Helper()
	l := w.listen(v, &position)
	l.hasNothing(why)
	l.close()
}

// hasNothing checks that the stream has nothing to send. A resuming stream first reads what the
// client missed.
func (l listener) hasNothing(why string) {
	l.w.Helper()
	ev, ok := l.stream.Next(l.ctx)
	require.False(l.w, ok, "%s: %T %+v", why, ev, ev)
	require.False(l.w, l.stream.Ended(), why)
}

// causes returns how often clients were told to read again, without the causes that did not occur.
func (w *world) causes() map[stream.Cause]uint64 {
	counts := w.Streams.Stats().Invalidated
	for cause, n := range counts {
		if n == 0 {
			delete(counts, cause)
		}
	}
	return counts
}

// A reader comes for the first time, or after Redis was lost, so the page is read from SQL. A client
// can resume after its position, for any page size and any number of young posts.
func TestPositionOfAFirstVisitIsGood(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob := w.User("bob")
		w.flood(60, time.Minute, bob)
		readers := w.Users(8)
		for _, v := range readers {
			require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
		}
		for i, size := range []int{1, 19, 20, 59, 60, 100} {
			page := w.page(w.Ctx, readers[i], paging.Page{First: &size}, home.Latest)
			require.Len(w, page.Edges, min(size, 60))
			w.quietAfter(readers[i], page.Position, "the client has it all")
		}
		page := w.page(w.Ctx, readers[6], paging.Page{}, home.Ranked)
		w.quietAfter(readers[6], page.Position, "a ranked page")

		five, v := 5, readers[7]
		page = w.page(w.Ctx, v, paging.Page{First: &five}, home.Latest)
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(v.ID)))
		page = w.page(w.Ctx, v, paging.Page{First: &five, After: &page.Edges[4].Cursor}, home.Latest)
		above := w.page(w.Ctx, v, paging.Page{Last: &five, Before: &page.Edges[0].Cursor}, home.Latest)
		require.Len(w, above.Edges, 5)
		w.quietAfter(v, above.Position, "the pages below and above a cursor, after the inbox was lost")
		require.Empty(w, w.causes())
	})
}

// A builder dies, or finds no turn for ten seconds because thousands wait after a wipe. When another
// builder takes over, positions from before stay valid, and posts that were pushed meanwhile stay in
// the inbox.
func TestBuildThatIsTakenOverLeavesPositionsGood(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		began := time.Now()
		var later atomic.Int64 // the builder reads the clock, too
		w := newWorld(t, s, feedtest.Options{Timelines: timeline.Config{Now: func() time.Time { return began.Add(time.Duration(later.Load())) }}})
		ann, bob := w.followed()
		w.History(bob, 30)
		_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
		require.NoError(w, err)
		_, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Inbox(ann.ID))
		require.True(w, err == nil && begun)
		page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
		missed := w.History(bob, 1)[0]
		_, err = w.Timelines.Inboxes.Deliver(w.Ctx, missed, []int64{ann.ID})
		require.NoError(w, err)
		later.Store(int64(11 * time.Second))
		w.AwaitInbox(ann)
		l := w.listen(ann, &page.Position)
		require.Equal(w, missed, l.added())
		l.hasNothing("nothing else was missed")
	})
}

// A timeline gets 5,000 posts in two minutes. A client that resumes after the position of a new page,
// or subscribes without one, receives nothing that was there before. It receives posts that arrive
// after the page, up to as many as an inbox holds.
func TestBusyTimelineComesToRest(t *testing.T) {
	t.Parallel() // takes some seconds: 5,000 posts on each engine
	for name, test := range map[string]struct {
		policy home.Policy
		merged bool // readers merge the authors
	}{
		"pushed": {}, "merged": {merged: true}, "all are merged": {policy: home.Policy{PullAbove: home.AlwaysPull}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				now := time.Now().Add(time.Second) // the clock stands still, so all posts stay young
				w := newWorld(t, s, feedtest.Options{Policy: test.policy, Now: func() time.Time { return now }})
				ann, authors := w.User("ann"), w.Users(4)
				for _, author := range authors {
					require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(author.ID).Exec(w.Ctx))
					if test.merged {
						require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
					}
				}
				all := w.flood(5000, 2*time.Minute, authors...)
				come := func(n int) (posts []int64) {
					for _, id := range w.flood(n, 0, authors[0]) {
						posts = append(posts, id)
						require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Outbox(authors[0].ID), id))
						if !test.merged && test.policy.PullAbove == 0 {
							_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
							require.NoError(w, err)
						}
					}
					return posts
				}
				twenty, first := 20, w.page(w.Ctx, ann, paging.Page{}, home.Latest) // no inbox and no outboxes yet
				require.Equal(w, feedtest.NewestFirst(all[4980:]...), feedtest.PostIDs(first))
				if name == "pushed" {
					w.quietAfter(ann, first.Position, "a first visit")
				}
				for _, author := range authors {
					require.NoError(w, w.Home.Reader.BuildOutbox(w.Ctx, author.ID))
				}
				w.AwaitInbox(ann)

				page := w.page(w.Ctx, ann, paging.Page{First: &twenty}, home.Latest)
				w.quietAfter(ann, page.Position, "nothing came since")
				require.Less(w, len(page.Position), 8<<10)
				begun := w.listen(ann, nil)
				begun.hasNothing("the client reads what is there by itself")
				begun.close()
				below := w.page(w.Ctx, ann, paging.Page{First: &twenty, After: &page.Edges[19].Cursor}, home.Latest)
				above := w.page(w.Ctx, ann, paging.Page{Last: &twenty, Before: &below.Edges[0].Cursor}, home.Latest)
				require.Len(w, above.Edges, 20)
				ranked := w.page(w.Ctx, ann, paging.Page{First: &twenty}, home.Ranked)
				w.quietAfter(ann, ranked.Position, "a ranked page")

				page = w.page(w.Ctx, ann, paging.Page{First: &twenty}, home.Latest)
				deep := page
				for range 40 { // pages to far below the inbox
					deep = w.page(w.Ctx, ann, paging.Page{First: &twenty, After: &deep.Edges[19].Cursor}, home.Latest)
				}
				missed := come(290) // the inbox loses most of the posts that the client has
				l := w.listen(ann, &page.Position)
				for _, id := range missed {
					require.Equal(w, id, l.added())
				}
				l.hasNothing("and nothing that was there before")
				l.close()
				require.Empty(w, w.causes())

				come(300)
				require.IsType(w, &stream.Invalidated{}, w.listen(ann, &page.Position).next(), "more came than is replayed")
				require.Equal(w, map[stream.Cause]uint64{stream.TooManyPosts: 1}, w.causes())
			})
		})
	}
}

// A slow fan-out delivers a post below more newer posts than a cursor names. A client that resumes
// after that is told at least to read again, even if the inbox has been trimmed since.
func TestPostFarBelowInABusyTimelineIsNotLost(t *testing.T) {
	t.Parallel()
	for name, merged := range map[string]bool{"pushed": false, "merged": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				now := time.Now().Add(time.Second)
				w := newWorld(t, s, feedtest.Options{Now: func() time.Time { return now }})
				ann, authors := w.User("ann"), w.Users(2)
				for _, author := range authors {
					require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(author.ID).Exec(w.Ctx))
					if merged {
						require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
					}
				}
				all := w.flood(1200, time.Minute, authors[0])
				deliver := func(author session.Viewer, id int64) {
					require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Outbox(author.ID), id))
					if !merged {
						_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
						require.NoError(w, err)
					}
				}
				slow := func(below int64) int64 {
					require.NoError(w, w.Stores.DB.Post.Create().SetID(below-1).SetAuthorID(authors[1].ID).SetText("slow").
						SetVisibility(schema.Public).Exec(w.Ctx))
					return below - 1
				}
				for _, author := range authors {
					require.NoError(w, w.Home.Reader.BuildOutbox(w.Ctx, author.ID))
				}
				w.AwaitInbox(ann)
				page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
				w.quietAfter(ann, page.Position, "nothing came")
				deliver(authors[1], slow(all[600]))
				require.IsType(w, &stream.Invalidated{}, w.listen(ann, &page.Position).next())

				page = w.page(w.Ctx, ann, paging.Page{}, home.Latest)
				w.quietAfter(ann, page.Position, "the client has read it")
				page = w.page(w.Ctx, ann, paging.Page{}, home.Latest)
				deliver(authors[1], slow(all[500]))
				for _, id := range w.flood(100, 0, authors[0]) {
					deliver(authors[0], id)
				}
				require.IsType(w, &stream.Invalidated{}, w.listen(ann, &page.Position).next(), "the inbox was trimmed since")
				require.Equal(w, map[stream.Cause]uint64{stream.Cause(home.OutOfOrder): 2}, w.causes())

				// An open stream receives an event for the post.
				l := w.listen(ann, nil)
				id := slow(all[400])
				deliver(authors[1], id)
				w.tell(ann, id)
				require.Equal(w, id, l.added())
				l.hasNothing("once")
			})
		})
	}
}

// A stream of a busy timeline keeps its cursors small, and a client can resume after each of them.
func TestBusyStreamKeepsItsCursorsGood(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now().Add(time.Second)
		w := newWorld(t, s, feedtest.Options{Now: func() time.Time { return now }})
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		var posts, longest = []int64{}, 0
		var positions []string
		for len(posts) < 2600 {
			some := w.flood(20, 0, bob)
			for _, id := range some {
				_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
				require.NoError(w, err)
				w.tell(ann, id)
			}
			for _, id := range some {
				ev := l.next()
				require.IsType(w, &stream.PostAdded{}, ev)
				require.Equal(w, id, ev.(*stream.PostAdded).Edge.Node.ID)
				positions = append(positions, ev.(*stream.PostAdded).Position())
				longest = max(longest, len(positions[len(positions)-1]))
			}
			posts = append(posts, some...)
		}
		require.Less(w, longest, 8<<10)
		for i := 2599; i > 2350; i -= 37 {
			resumed := w.listen(ann, &positions[i])
			for _, id := range posts[i+1:] {
				require.Equal(w, id, resumed.added(), "left after %d", i)
			}
			resumed.close()
		}
		l.close()
		require.Empty(w, w.causes())
	})
}

// A stream sends more removals than the journal keeps. The client has received all of them, so it is
// not told to read again when it resumes.
func TestManyRemovalsThatWereToldLeaveThePositionGood(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		posts := w.flood(150, 0, bob)
		for _, id := range posts {
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
		}
		l := w.listen(ann, nil)
		var position string
		for _, id := range posts {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetVisibility(schema.Private).Exec(w.Ctx))
			require.NoError(w, w.Timelines.Inboxes.Withdraw(w.Ctx, []int64{id}, []int64{ann.ID}))
			_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Removed, Post: id, Author: bob.ID}, []int64{ann.ID})
			require.NoError(w, err)
			ev := l.next()
			require.IsType(w, &stream.PostRemoved{}, ev)
			require.Equal(w, id, ev.(*stream.PostRemoved).PostID, "once")
			position = ev.(*stream.PostRemoved).Position
		}
		l.close()
		resumed := w.listen(ann, &position)
		for {
			ev, ok := resumed.stream.Next(w.Ctx)
			if !ok {
				break
			}
			require.IsType(w, &stream.PostRemoved{}, ev, "the last ones may be told once more")
		}
		require.Empty(w, w.causes())
	})
}
