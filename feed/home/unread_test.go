package home_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/mutedword"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/clientstate"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// unread returns the viewer's unread count and the number of queries that it took.
func (w *world) unread(v session.Viewer) (n, queries int) {
	w.Helper()
	count := storagetest.CountQueries(w.Stores)
	n, err := w.Home.Unread.Count(w.Ctx, v)
	require.NoError(w, err)
	return n, count()
}

// doingJobs returns a function that does all jobs in the queue.
func (w *world) doingJobs() (doJobs func()) {
	ws, err := workers.New(w.WorkersConfig())
	require.NoError(w, err)
	return func() {
		w.Helper()
		stop := w.Run(ws.Run)
		defer stop()
		w.Drain()
	}
}

// A kept number is not counted again while nothing changes, nor when posts come.
func TestUnreadCountIsKept(t *testing.T) {
	t.Parallel()
	// The list of merged authors is read once, because each query is counted.
	o := feedtest.Options{Policy: home.Policy{MergedListFor: 1 << 50, PushAndPullFor: 1 << 55}}
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, o)
		doJobs := w.doingJobs()
		ann, bob, cem := w.User("ann"), w.User("bob"), w.User("cem")
		w.Follow(ann, bob)
		doJobs()
		w.AwaitInbox(ann)
		var posts []int64
		post := func(author session.Viewer, n int) {
			for range n {
				posts = append(posts, w.Post(author, schema.Public))
			}
			doJobs()
		}
		// If Redis is slow, the number is counted anew. So a kept number may come late, but a
		// wrong number must never come.
		kept := func(want int, why string) {
			w.Helper()
			require.Eventually(w, func() bool {
				n, queries := w.unread(ann)
				require.Equal(w, want, n, why)
				return queries == 1
			}, time.Minute, time.Millisecond, why)
		}
		post(bob, 2)
		kept(2, "nothing happened")
		unread := 2
		require.Eventually(w, func() bool {
			post(bob, 1)
			unread++
			n, queries := w.unread(ann)
			require.Equal(w, unread, n)
			return queries == 2
		}, time.Minute, time.Millisecond, "of those that come only they are read")
		kept(unread, "they are known now")
		post(ann, 1)
		kept(unread, "an own post does not count")
		post(cem, 1)
		kept(unread, "a post of somebody whom the viewer does not follow")
		page, err := w.Home.Timeline(w.Ctx, ann, paging.Page{}, home.Latest)
		require.NoError(w, err)
		_, err = w.Home.Unread.MarkRead(w.Ctx, ann, page.Edges[len(page.Edges)-1].Cursor)
		require.NoError(w, err)
		unread--
		kept(unread, "the marker has moved")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, posts[1]))
		unread--
		n, _ := w.unread(ann)
		require.Equal(w, unread, n, "deleted, and the job is not done")
		doJobs()
		kept(unread, "the deletion has reached the inbox")
		post(bob, 30)
		kept(unread+30, "many came")
		post(bob, feedtest.InboxCap)
		kept(feedtest.InboxCap, "as many as an inbox has")
		post(bob, 1)
		kept(feedtest.InboxCap, "the oldest of them counts no more")
		post(ann, 1)
		kept(feedtest.InboxCap-1, "nor does the one before, for an own one has its place")
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		n, _ = w.unread(ann)
		require.Equal(w, feedtest.InboxCap-1, n, "without an inbox")
	})
}

// A kept number never includes posts that the viewer may not see, whether or not the job of the
// change is done, and never lacks posts that the viewer may see again. This holds for pushed and
// for merged authors, with and without muted words.
func TestKeptUnreadCountHasWhatTheViewerMaySee(t *testing.T) {
	t.Parallel()
	// The list of merged authors is read once, because each query is counted.
	o := feedtest.Options{Policy: home.Policy{MergedListFor: 1 << 50, PushAndPullFor: 1 << 55}}
	for name, c := range map[string]struct {
		mode    user.FanOutMode
		words   bool
		queries int // the most queries that a kept number takes
	}{
		"pushed":            {user.FanOutModePUSH, false, 2},
		"pushed, and words": {user.FanOutModePUSH, true, 2},
		"merged":            {user.FanOutModePULL, false, 3},
		"merged, and words": {user.FanOutModePULL, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				w := newWorld(t, s, o)
				author := w.User("author")
				w.Stores.DB.User.UpdateOneID(author.ID).SetFanOutMode(c.mode).ExecX(w.Ctx)
				w.unreadAfterChanges(author, c.queries, c.words)
			})
		})
	}
}

// unreadAfterChanges changes which posts of the author three viewers may see. The first viewer
// also counts before the job is done, and the last is counted as one of many users. A kept number
// takes at most the given queries. If words is set, the viewers mute penguins.
func (w *world) unreadAfterChanges(author session.Viewer, queries int, words bool) {
	w.Helper()
	doJobs, viewers := w.doingJobs(), []session.Viewer{w.User("eager"), w.User("patient"), w.User("one_of_many")}
	for _, viewer := range viewers {
		if words {
			_, _, err := w.Feed.MuteWord(w.Ctx, viewer, "penguin")
			require.NoError(w, err)
		}
		w.Befriend(viewer, author)
	}
	doJobs()
	kept := func(want int, what string) {
		w.Helper()
		last := viewers[2]
		many, err := w.Home.Unread.Counts(w.Ctx, []int64{last.ID})
		require.NoError(w, err)
		if n, counted := many[last.ID]; counted {
			require.Equal(w, want, n, what)
		}
		for _, viewer := range viewers[:2] {
			n, _ := w.unread(viewer) // before any other call notices the change
			require.Equal(w, want, n, what)
			w.AwaitInbox(viewer)
			require.Eventually(w, func() bool {
				n, took := w.unread(viewer)
				require.Equal(w, want, n, what)
				return took <= queries
			}, time.Minute, time.Millisecond, "kept: %s", what)
		}
		w.AwaitInbox(last)
		require.Eventually(w, func() bool {
			count := storagetest.CountQueries(w.Stores)
			many, err := w.Home.Unread.Counts(w.Ctx, []int64{last.ID})
			took := count()
			require.NoError(w, err)
			n, counted := many[last.ID]
			if counted {
				require.Equal(w, want, n, what)
			}
			return counted && (want < 3 || took <= queries) // hidden posts are read each time
		}, time.Minute, time.Millisecond, "kept of many: %s", what)
	}
	kept(0, "without posts")
	w.Post(author, schema.Public)
	post := w.Post(author, schema.Public)
	w.Post(author, schema.Mutuals)
	doJobs()
	set := func(v schema.Visibility) func(session.Viewer) error {
		return func(session.Viewer) error { _, err := w.Feed.SetVisibility(w.Ctx, author, post, v); return err }
	}
	edit := func(text string) func(session.Viewer) error {
		return func(session.Viewer) error {
			_, err := w.Feed.UpdatePost(w.Ctx, author, post, feed.Edit{Text: &text})
			return err
		}
	}
	type change struct {
		what     string
		do, undo func(session.Viewer) error // for each viewer; a second call changes nothing
		unread   int
	}
	changes := []change{
		{"private", set(schema.Private), set(schema.Public), 2},
		{"mutuals", set(schema.Mutuals), set(schema.Public), 3},
		{"muted", func(v session.Viewer) error { _, err := w.Feed.Mute(w.Ctx, v, author.ID); return err }, func(v session.Viewer) error { _, err := w.Feed.Unmute(w.Ctx, v, author.ID); return err }, 0},
		{"no friends any more", func(v session.Viewer) error { _, err := w.Feed.Unfollow(w.Ctx, author, v.ID); return err }, func(v session.Viewer) error { _, err := w.Feed.Follow(w.Ctx, author, v.ID); return err }, 2},
		{"unfollowed", func(v session.Viewer) error { _, err := w.Feed.Unfollow(w.Ctx, v, author.ID); return err }, func(v session.Viewer) error { _, err := w.Feed.Follow(w.Ctx, v, author.ID); return err }, 0},
	}
	if words { // most of the other changes do not concern muted words
		changes = append(changes[:1],
			change{"edited", edit("a penguin"), edit("hello"), 2},
			change{"words", func(v session.Viewer) error { _, _, err := w.Feed.MuteWord(w.Ctx, v, "hello"); return err }, func(v session.Viewer) error { _, _, err := w.Feed.UnmuteWord(w.Ctx, v, "hello"); return err }, 0},
			change{"words, and Redis has not heard", func(v session.Viewer) error {
				return w.Stores.DB.MutedWord.Create().SetUserID(v.ID).SetWord("hello").SetHead("hello").Exec(w.Ctx)
			}, func(v session.Viewer) error {
				_, err := w.Stores.DB.MutedWord.Delete().Where(mutedword.UserID(v.ID), mutedword.Word("hello")).Exec(w.Ctx)
				return err
			}, 0})
	}
	kept(3, "at first")
	for _, change := range changes {
		for _, viewer := range viewers {
			require.NoError(w, change.do(viewer))
		}
		n, _ := w.unread(viewers[0])
		require.Equal(w, change.unread, n, "%s, job not done", change.what)
		doJobs()
		kept(change.unread, change.what)
		for _, viewer := range viewers {
			require.NoError(w, change.undo(viewer))
		}
		doJobs()
		kept(3, "no more "+change.what)
	}
}

// A kept number that is wrong is logged and counted anew.
func TestWrongUnreadCountIsFound(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		doJobs := w.doingJobs()
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		doJobs()
		w.AwaitInbox(ann)
		post := &ent.Post{ID: w.Post(bob, schema.Public), AuthorID: ann.ID} // as if it were ann's own
		doJobs()
		_, inbox, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(ann.ID), timeline.Range{})
		require.NoError(w, err)
		w.Home.Unread.Keep(ann.ID, inbox, []*ent.Post{post})
		n, _ := w.unread(ann)
		require.Zero(w, n, "it is told as it was kept")
		right := func() bool { n, _ := w.unread(ann); return n == 1 }
		for range 1000 {
			if right() {
				break
			}
		}
		require.True(w, right(), "one in a thousand is counted, and that is kept")
	})
}

// A cursor of the future marks the existing posts as read, and no later ones.
func TestMarkerOfTheFuture(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		future := paging.Cursor{ID: 1<<53 - 1}.Encode(paging.Latest, ann.ID)
		n, err := w.Home.Unread.MarkRead(w.Ctx, ann, future) // there is no post yet
		require.NoError(w, err)
		require.Zero(w, n)
		w.Follow(ann, bob)
		post := func() {
			w.Post(bob, schema.Public)
			w.Drain()
		}
		post()
		for range 2 {
			n, err = w.Home.Unread.Count(w.Ctx, ann)
			require.NoError(w, err)
			require.Equal(w, 1, n)
			n, err = w.Home.Unread.MarkRead(w.Ctx, ann, future)
			require.NoError(w, err)
			require.Zero(w, n)
			post()
		}
	})
}

// The marker stays above the newest post after that one is deleted, also for a late call with an earlier entry.
func TestMarkerOfADeletedPost(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		earlier, _, newest := w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		w.Drain()
		mark := func(post int64) {
			n, err := w.Home.Unread.MarkRead(w.Ctx, ann, paging.Cursor{ID: post}.Encode(paging.Latest, ann.ID))
			require.NoError(w, err)
			require.Zero(w, n)
		}
		mark(newest)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, newest))
		w.Drain()
		mark(earlier)
	})
}

// A client that resumes after a cursor that covers all posts of the future is told to read again.
// Otherwise it would silently receive no post.
func TestResumeAfterTheFuture(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		at := w.Home.Reader.Visit(w.Ctx, ann.ID)
		for _, c := range []struct {
			low  int64
			good bool
		}{{ids.At(w.Now()), true}, {ids.At(w.Now().Add(time.Hour)), false}, {1<<53 - 1, false}} {
			state := clientstate.New(at.Position, c.low)
			after, err := paging.Decode(state.Cursor(ann, c.low), paging.Latest, ann.ID)
			require.NoError(w, err)
			_, good, err := w.Home.Clients.At(w.Ctx, ann, after)
			require.NoError(w, err)
			require.Equal(w, c.good, good, c.low)
		}
	})
}
