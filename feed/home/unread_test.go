package home_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/unread"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// unread asks for the viewer's number of unread posts, and returns how many queries it took.
func (w *world) unread(v account.Viewer) (n, queries int) {
	w.Helper()
	count := storagetest.CountQueries(w.Stores)
	n, err := w.Home.UnreadCount(w.Ctx, v)
	require.NoError(w, err)
	return n, count()
}

// doingJobs returns what does the jobs that there are.
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

// The number is not counted again while nothing changes, nor for posts that come.
func TestUnreadCountIsKept(t *testing.T) {
	t.Parallel()
	// The list of merged authors is read once: each query is counted.
	o := feedtest.Options{Policy: home.Policy{MergedListFor: 1 << 50, PushAndPullFor: 1 << 55}}
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, o)
		doJobs := w.doingJobs()
		ann, bob, cem := w.User("ann"), w.User("bob"), w.User("cem")
		w.Follow(ann, bob)
		doJobs()
		w.AwaitInbox(ann)
		var posts []int64
		post := func(author account.Viewer, n int) {
			for range n {
				posts = append(posts, w.Post(author, schema.Public))
			}
			doJobs()
		}
		// Where Redis is slow the number is counted anew, so a number that is kept may come
		// late; a wrong one may not come at all.
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
		_, err = w.Home.MarkRead(w.Ctx, ann, page.Edges[len(page.Edges)-1].Cursor)
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
		require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		n, _ = w.unread(ann)
		require.Equal(w, feedtest.InboxCap-1, n, "without an inbox")
	})
}

// A number that is kept never counts what the viewer may not see, whether the job of that
// change is done or not, nor lacks what the viewer may see again.
func TestKeptUnreadCountHasWhatTheViewerMaySee(t *testing.T) {
	t.Parallel()
	// The list of merged authors is read once: each query is counted.
	o := feedtest.Options{Policy: home.Policy{MergedListFor: 1 << 50, PushAndPullFor: 1 << 55}}
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, o)
		doJobs := w.doingJobs()
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		w.Follow(bob, ann)
		doJobs()
		w.AwaitInbox(ann)
		w.Post(bob, schema.Public)
		changing := w.Post(bob, schema.Public)
		w.Post(bob, schema.Mutuals)
		doJobs()
		set := func(v schema.Visibility) error {
			_, err := w.Feed.SetVisibility(w.Ctx, bob, changing, v)
			return err
		}
		for _, change := range []struct {
			what     string
			do, undo func() error
			unread   int
		}{
			{"private", func() error { return set(schema.Private) }, func() error { return set(schema.Public) }, 2},
			{"mutuals", func() error { return set(schema.Mutuals) }, func() error { return set(schema.Public) }, 3},
			{"muted", func() error { _, err := w.Feed.Mute(w.Ctx, ann, bob.ID); return err }, func() error { _, err := w.Feed.Unmute(w.Ctx, ann, bob.ID); return err }, 0},
			{"no friends any more", func() error { _, err := w.Feed.Unfollow(w.Ctx, bob, ann.ID); return err }, func() error { _, err := w.Feed.Follow(w.Ctx, bob, ann.ID); return err }, 2},
			{"unfollowed", func() error { _, err := w.Feed.Unfollow(w.Ctx, ann, bob.ID); return err }, func() error { _, err := w.Feed.Follow(w.Ctx, ann, bob.ID); return err }, 0},
			{"words", func() error { _, _, err := w.Feed.MuteWord(w.Ctx, ann, "hello"); return err }, func() error { _, _, err := w.Feed.UnmuteWord(w.Ctx, ann, "hello"); return err }, 0},
		} {
			w.AwaitInbox(ann)
			require.Eventually(w, func() bool {
				n, queries := w.unread(ann)
				require.Equal(w, 3, n, "before %s", change.what)
				return queries == 1
			}, time.Minute, time.Millisecond, "kept before %s", change.what)
			require.NoError(w, change.do())
			n, _ := w.unread(ann)
			require.Equal(w, change.unread, n, "%s, job not done", change.what)
			doJobs()
			for range 2 {
				n, _ = w.unread(ann)
				require.Equal(w, change.unread, n, change.what)
			}
			require.NoError(w, change.undo())
			doJobs()
			for range 2 {
				n, _ = w.unread(ann)
				require.Equal(w, 3, n, "after %s", change.what)
			}
		}
	})
}

// A number that was kept and is wrong is told of, and counted anew.
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
		position, err := w.Timelines.Visit(w.Ctx, ann.ID)
		require.NoError(w, err)
		w.Home.KeepUnread(ann.ID, unread.Counted(ann.ID, position, []*ent.Post{post}))
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
