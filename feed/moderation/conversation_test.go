package moderation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/session"
)

// A report of a reply shows the moderators the posts above it and the replies to it, also where they are
// hidden from everybody else, and no other post. It does so after the reply was edited and deleted.
func TestAReportShowsTheConversation(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		ann, bad, good := w.User("ann"), w.User("bad"), w.User("good")
		reply := func(by session.Viewer, to int64, v schema.Visibility) int64 {
			w.Helper()
			p, err := w.Feed.CreatePost(w.Ctx, by, feed.Draft{Text: "as reported", ReplyTo: to, Visibility: &v})
			require.NoError(w, err)
			return p.ID
		}
		root := w.Post(ann, schema.Public)
		sibling := reply(good, root, schema.Public)
		parent := reply(ann, root, schema.Private)
		between := reply(ann, parent, schema.Public)
		about := reply(bad, between, schema.Public)
		first, second := reply(good, about, schema.Private), reply(ann, about, schema.Public)
		reply(good, second, schema.Public)
		w.Post(bad, schema.Private)
		report := func(post int64) {
			w.Helper()
			_, err := w.Moderation.ReportPost(w.Ctx, good, post, spam)
			require.NoError(w, err)
		}
		shows := func(i int, above, below []int64) {
			w.Helper()
			r := queue(w, moderator, "")[i]
			require.Equal(w, above != nil, r.PostID != 0)
			ancestors, err := w.Moderation.ReportedAncestors(w.Ctx, r)
			require.NoError(w, err)
			require.Equal(w, append([]int64{}, above...), ids(ancestors))
			replies, err := w.Moderation.ReportedReplies(w.Ctx, r)
			require.NoError(w, err)
			require.Equal(w, append([]int64{}, below...), ids(replies))
		}
		report(about)
		_, err := w.Feed.HidePost(w.Ctx, second, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		_, err = w.Feed.SetVisibility(w.Ctx, ann, root, schema.Private)
		require.NoError(w, err)
		_, err = w.Feed.UpdatePost(w.Ctx, bad, about, feed.Edit{Text: new("nothing bad")})
		require.NoError(w, err)
		shows(0, []int64{root, parent, between}, []int64{first, second})
		require.Equal(w, "as reported", queue(w, moderator, "")[0].Text)

		require.NoError(w, w.Feed.DeletePost(w.Ctx, bad, about))
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, parent))
		shows(0, []int64{root, between}, []int64{first, second})
		require.Equal(w, "as reported", queue(w, moderator, "")[0].Text)

		// Of a repost the original is shown, and of a user nothing.
		_, err = w.Feed.SetVisibility(w.Ctx, ann, root, schema.Public)
		require.NoError(w, err)
		repost, err := w.Feed.Repost(w.Ctx, bad, sibling, nil)
		require.NoError(w, err)
		report(repost.ID)
		_, err = w.Moderation.ReportUser(w.Ctx, good, bad.ID, spam)
		require.NoError(w, err)
		shows(1, []int64{root, sibling}, nil)
		shows(2, nil, nil)

		// The posts of a user who is suspended stay readable, those of a user who is being deleted do not.
		_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, ann.ID, "", account.Suspension{})
		require.NoError(w, err)
		shows(0, []int64{root, between}, []int64{first, second})
		_, _, err = w.Accounts.Delete(w.Ctx, ann.ID, 0)
		require.NoError(w, err)
		shows(0, []int64{}, []int64{first})
	})
}

// What a report shows is bounded: the nearest ancestors with the root, and the first replies.
func TestTheConversationOfAReportIsBounded(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		ann, bad, good := w.User("ann"), w.User("bad"), w.User("good")
		root := w.Post(ann, schema.Public)
		chain := []int64{root}
		for range feed.MostReportedAncestors + 2 {
			p, err := w.Feed.CreatePost(w.Ctx, bad, feed.Draft{Text: "deeper", ReplyTo: chain[len(chain)-1]})
			require.NoError(w, err)
			chain = append(chain, p.ID)
		}
		about := chain[len(chain)-1]
		var replies []int64
		for range feed.MostReportedReplies + 1 {
			p, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "no", ReplyTo: about})
			require.NoError(w, err)
			replies = append(replies, p.ID)
		}
		_, err := w.Moderation.ReportPost(w.Ctx, good, about, spam)
		require.NoError(w, err)
		r := queue(w, moderator, "")[0]
		above, err := w.Moderation.ReportedAncestors(w.Ctx, r)
		require.NoError(w, err)
		require.Equal(w, append([]int64{root}, chain[2:len(chain)-1]...), ids(above))
		below, err := w.Moderation.ReportedReplies(w.Ctx, r)
		require.NoError(w, err)
		require.Equal(w, replies[:feed.MostReportedReplies], ids(below))
	})
}

func ids(posts []*ent.Post) []int64 {
	list := []int64{}
	for _, p := range posts {
		list = append(list, p.ID)
	}
	return list
}
