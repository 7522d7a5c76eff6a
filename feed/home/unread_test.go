package home_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
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
		post := func(author account.Viewer) {
			posts = append(posts, w.Post(author, schema.Public))
			doJobs()
		}
		kept := func(want, wantQueries int, why string) {
			w.Helper()
			n, queries := w.unread(ann)
			require.Equal(w, want, n, why)
			require.Equal(w, wantQueries, queries, why)
		}
		counted := func(want int, why string) {
			w.Helper()
			n, queries := w.unread(ann)
			require.Equal(w, want, n, why)
			require.Greater(w, queries, 2, why)
			kept(want, 1, why+", once more")
		}
		post(bob)
		post(bob)
		w.unread(ann)
		kept(2, 1, "nothing happened")
		post(bob)
		kept(3, 2, "one came, and is read")
		kept(3, 1, "it is known now")
		post(ann)
		kept(3, 2, "an own post does not count")
		post(cem)
		kept(3, 1, "a post of somebody whom the viewer does not follow")
		page, err := w.Home.Timeline(w.Ctx, ann, paging.Page{}, home.Latest)
		require.NoError(w, err)
		_, err = w.Home.MarkRead(w.Ctx, ann, page.Edges[3].Cursor) // the first
		require.NoError(w, err)
		kept(2, 1, "the marker has moved")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, posts[1]))
		n, _ := w.unread(ann)
		require.Equal(w, 1, n, "deleted, and the job is not done")
		doJobs()
		counted(1, "the deletion has reached the inbox")
		for range 30 {
			w.Post(bob, schema.Public)
		}
		doJobs()
		kept(31, 2, "many came")
		for range feedtest.InboxCap {
			w.Post(bob, schema.Public)
		}
		doJobs()
		n, _ = w.unread(ann)
		require.Equal(w, feedtest.InboxCap, n, "no more than an inbox has")
		kept(feedtest.InboxCap, 1, "as many as an inbox has")
		post(bob)
		kept(feedtest.InboxCap, 2, "the oldest of them counts no more")
		post(ann)
		kept(feedtest.InboxCap-1, 2, "nor does the one before, for an own one has its place")
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
			w.unread(ann)
			n, queries := w.unread(ann)
			require.Equal(w, 3, n, "before %s", change.what)
			require.Equal(w, 1, queries, "before %s", change.what)
			require.NoError(w, change.do())
			n, _ = w.unread(ann)
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
