package feed_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// public returns the posts that the list of the newest public posts shows to a viewer, read with a given page size.
func public(w *feedtest.World, v session.Viewer, size int) []int64 {
	w.Helper()
	all := []int64{}
	for p := (paging.Page{First: &size}); ; {
		page, err := w.Feed.PublicPosts(w.Ctx, v, p)
		require.NoError(w, err)
		all = append(all, feedtest.PostIDs(page)...)
		if !page.PageInfo().HasNextPage {
			return all
		}
		p.After = page.PageInfo().EndCursor
	}
}

// The list has the posts that anybody may see, newest first, of all authors, without replies and reposts. Members see a
// new post at once, and visitors a few seconds later.
func TestPublicPosts(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var later atomic.Int64
		start := time.Now()
		w := feedtest.Idle(t, s, feedtest.Options{Now: func() time.Time { return start.Add(time.Duration(later.Load())) }})
		ann, bob, cat := w.SignUp("ann", "correct horse"), w.User("bob"), w.User("cat")
		w.Befriend(bob, cat)
		visitor := session.Viewer{}
		require.Empty(t, public(w, visitor, 20))

		root := say(w, ann, "Low water", schema.Public)
		for _, v := range []schema.Visibility{schema.Followers, schema.Mutuals, schema.Private} {
			say(w, cat, "hush", v)
		}
		create := func(author session.Viewer, d feed.Draft) int64 {
			p, err := w.Feed.CreatePost(w.Ctx, author, d)
			require.NoError(t, err)
			return p.ID
		}
		create(bob, feed.Draft{Text: "Aye", ReplyTo: root})
		_, err := w.Feed.Repost(w.Ctx, bob, root, nil)
		require.NoError(t, err)
		quote := create(bob, feed.Draft{Text: "Look", QuoteOf: root})
		loud := say(w, cat, "LOUD", schema.Public)

		require.Equal(t, []int64{loud, quote, root}, public(w, ann, 20), "a member reads the list anew")
		require.Empty(t, public(w, visitor, 20), "a visitor is shown a list from a moment ago")
		pass := func() { later.Add(int64(10 * time.Second)) }
		pass()
		see := func(v session.Viewer, want ...int64) {
			t.Helper()
			for _, size := range []int{1, 2, 20} {
				require.Equal(t, append([]int64{}, want...), public(w, v, size))
			}
		}
		see(visitor, loud, quote, root)
		see(bob, loud, quote, root)

		do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		do(w.Feed.Mute(w.Ctx, ann, bob.ID))
		see(ann, loud, root)
		_, _, err = w.Feed.MuteWord(w.Ctx, ann, "loud")
		require.NoError(t, err)
		see(ann, root)
		do(w.Feed.Block(w.Ctx, ann, cat.ID))
		see(cat, loud, quote)
		see(bob, loud, quote, root)

		// The verdict is new at each read, even where the list is not.
		do(w.Feed.SetVisibility(w.Ctx, cat, loud, schema.Followers))
		see(visitor, quote, root)
		see(bob, quote, root)
		do(w.Feed.SetVisibility(w.Ctx, cat, loud, schema.Public))
		see(visitor, loud, quote, root)
		do(w.Feed.HidePost(w.Ctx, loud, true, func(*ent.Tx, int64) error { return nil }))
		see(visitor, quote, root)
		see(cat, quote)
		do(w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "", account.Suspension{}))
		see(visitor, root)
		do(w.Login.DeleteAccount(w.Ctx, ann, "correct horse"))
		see(visitor)
		do(w.Login.LogIn(w.Ctx, "ann", "correct horse"))
		see(visitor, root)
		require.NoError(t, w.Feed.DeletePost(w.Ctx, ann, root))
		see(visitor)
		do(w.Moderation.Unsuspend(w.Ctx, moderation.Console, bob.ID, ""))
		see(visitor, quote)
	})
}

// The list ends, and a page costs a bounded read however many of its posts are hidden.
func TestPublicPostsEnd(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat := w.User("ann"), w.User("bob"), w.User("cat")
		w.History(ann, 10)
		newest := w.History(bob, visibility.MostLooked-10)
		all := public(w, cat, 100)
		require.Len(w, all, visibility.MostLooked)
		require.Equal(w, feedtest.NewestFirst(newest...), all[:len(newest)])
		require.Equal(w, all, public(w, session.Viewer{}, 100))
		say(w, cat, "one more", schema.Public)
		require.Len(w, public(w, cat, 100), visibility.MostLooked, "the oldest one is no longer in it")

		_, err := w.Feed.Mute(w.Ctx, cat, bob.ID)
		require.NoError(w, err)
		asked := storagetest.CountQueries(w.Stores)
		one := 1
		page, err := w.Feed.PublicPosts(w.Ctx, cat, paging.Page{First: &one})
		require.NoError(w, err)
		require.Len(w, page.Nodes(), 1)
		first := page.PageInfo().EndCursor
		page, err = w.Feed.PublicPosts(w.Ctx, cat, paging.Page{First: &one, After: first})
		require.NoError(w, err)
		require.Len(w, page.Nodes(), 1)
		require.LessOrEqual(w, asked(), 25)
	})
}
