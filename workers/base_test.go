package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	feedjob "tideline/feed/job"
	"tideline/feed/session"
)

// After a suspension and its end, the replies to the author's posts are marked as changed, so that
// clients look at them again. Nothing is enqueued for that if the author has no posts.
func TestRepliesToASuspendedAuthorAreMarkedAsChanged(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat, dan := w.User("ann"), w.User("bob"), w.User("cat"), w.User("dan")
		allow := func(*ent.Tx, *ent.User) error { return nil }
		w.History(ann, 1001) // a step looks at 1,000 posts for replies
		answered, lonely := w.Post(ann, schema.Public), w.Post(cat, schema.Public)
		reply, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "reply", ReplyTo: answered})
		require.NoError(w, err)
		w.Stores.DB.Job.Delete().ExecX(w.Ctx)
		_, err = w.Accounts.Suspend(w.Ctx, cat.ID, account.Suspension{}, allow)
		require.NoError(w, err)
		_, err = w.Accounts.Suspend(w.Ctx, ann.ID, account.Suspension{}, allow)
		require.NoError(w, err)
		kinds, err := w.Stores.DB.Job.Query().Order(job.ByID()).Select(job.FieldKind).Strings(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, []string{feedjob.AuthorStale, feedjob.AuthorStale}, kinds)
		for author, enqueues := range map[int64]bool{dan.ID: false, cat.ID: true, ann.ID: true} {
			require.NoError(w, w.Feed.AuthorChanged(w.Ctx, author))
			n, err := w.Stores.DB.Job.Delete().Where(job.Kind(feedjob.BaseChanged)).Exec(w.Ctx)
			require.NoError(w, err)
			require.Equal(w, enqueues, n == 1)
		}
		w.Work()
		w.Drain()
		changed := func(id int64) int64 { return w.Stores.DB.Post.GetX(w.Ctx, id).ChangedAt }
		afterSuspension := changed(reply.ID)
		require.Positive(w, afterSuspension)
		require.Zero(w, changed(lonely))
		_, err = w.Accounts.Unsuspend(w.Ctx, ann.ID, allow)
		require.NoError(w, err)
		w.Drain()
		require.Greater(w, changed(reply.ID), afterSuspension)
	})
}

// A post that shows a card is marked as changed when the card changes, also if it only reposts the post with the card: after
// an edit of the quoted post, after the quote was withdrawn, and when the root of a quoted reply is hidden.
func TestPostsWithAChangedCardAreMarked(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat := w.User("ann"), w.User("bob"), w.User("cat")
		write := func(by session.Viewer, d feed.Draft) int64 {
			p, err := w.Feed.CreatePost(w.Ctx, by, d)
			require.NoError(w, err)
			return p.ID
		}
		root := w.Post(ann, schema.Public)
		reply := write(ann, feed.Draft{Text: "reply", ReplyTo: root})
		quote := write(bob, feed.Draft{Text: "quote", QuoteOf: reply})
		other := write(bob, feed.Draft{Text: "quote of the quote", QuoteOf: quote})
		repost, err := w.Feed.Repost(w.Ctx, cat, quote, nil)
		require.NoError(w, err)
		w.Work()
		w.Drain()
		changed := func(id int64) int64 { return w.Stores.DB.Post.GetX(w.Ctx, id).ChangedAt }
		for name, change := range map[string]func() error{
			"edit": func() error {
				_, err := w.Feed.UpdatePost(w.Ctx, ann, reply, feed.Edit{Text: new("edited")})
				return err
			},
			"root": func() error {
				_, err := w.Feed.SetVisibility(w.Ctx, ann, root, schema.Followers)
				return err
			},
		} {
			quoteBefore, repostBefore := changed(quote), changed(repost.ID)
			require.NoError(w, change(), name)
			w.Drain()
			require.Greater(w, changed(quote), quoteBefore, name)
			require.Greater(w, changed(repost.ID), repostBefore, name)
		}
		before := changed(repost.ID)
		_, err = w.Feed.WithdrawQuote(w.Ctx, ann, quote)
		require.NoError(w, err)
		w.Drain()
		require.Greater(w, changed(repost.ID), before)
		require.Zero(w, changed(other), "it shows the text of the quote, which did not change")
	})
}
