package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/session"
)

// Each rule about a root, an original or a parent has a sentence of its own.
func TestExplainNamesTheRulesOfConversations(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat, dan := w.User("ann"), w.User("bob"), w.User("cat"), w.User("dan")
		w.Follow(ann, bob)
		w.Follow(bob, cat)
		says := func(post int64, words string) {
			w.Helper()
			why, err := w.Audit.Explain(w.Ctx, ann.ID, post)
			require.NoError(w, err)
			require.Contains(w, why, words)
		}
		reply := func(by session.Viewer, to int64) int64 {
			w.Helper()
			p, err := w.Feed.CreatePost(w.Ctx, by, feed.Draft{Text: "a reply", ReplyTo: to})
			require.NoError(w, err)
			return p.ID
		}
		setting := func(h schema.HomeReplies) {
			w.Helper()
			_, err := w.Accounts.UpdateProfile(w.Ctx, ann, account.Profile{HomeReplies: &h})
			require.NoError(w, err)
		}
		root := w.Post(cat, schema.Public)
		answer := reply(bob, root)
		repost, err := w.Feed.Repost(w.Ctx, bob, root, nil)
		require.NoError(w, err)
		passedOn, err := w.Feed.Repost(w.Ctx, bob, reply(dan, root), nil)
		require.NoError(w, err)

		says(answer, "it is a reply to somebody that the viewer does not follow")
		says(repost.ID, "It is shown")
		setting(schema.NoReplies)
		says(answer, "it is a reply, and the viewer wants none in the home timeline")
		says(passedOn.ID, "It is shown")
		setting(schema.AllReplies)
		says(answer, "It is shown")
		own := reply(ann, answer)
		says(own, "It is shown")

		_, err = w.Feed.MuteConversation(w.Ctx, ann, root)
		require.NoError(w, err)
		says(answer, "it belongs to a conversation that the viewer mutes")
		says(passedOn.ID, "it belongs to a conversation that the viewer mutes")
		says(repost.ID, "It is shown")
		says(own, "It is shown")
		_, err = w.Feed.UnmuteConversation(w.Ctx, ann, root)
		require.NoError(w, err)
		_, err = w.Feed.Mute(w.Ctx, ann, cat.ID)
		require.NoError(w, err)
		says(answer, "it belongs to a conversation whose first post is hidden: the viewer mutes the author")
		says(repost.ID, "it is a repost whose original is hidden: the viewer mutes the author")
		_, err = w.Feed.Unmute(w.Ctx, ann, cat.ID)
		require.NoError(w, err)
		_, err = w.Feed.Mute(w.Ctx, ann, dan.ID)
		require.NoError(w, err)
		says(passedOn.ID, "it is a repost whose original is hidden: the viewer mutes the author")
		_, err = w.Feed.Unmute(w.Ctx, ann, dan.ID)
		require.NoError(w, err)

		_, err = w.Feed.SetVisibility(w.Ctx, cat, root, schema.Followers)
		require.NoError(w, err)
		says(answer, "whose first post is hidden: it is for followers")
		says(repost.ID, "whose original is hidden: it is for followers")
		says(passedOn.ID, "whose first post is hidden: it is for followers")
		_, err = w.Feed.SetVisibility(w.Ctx, cat, root, schema.Private)
		require.NoError(w, err)
		says(answer, "whose first post is hidden: it is for the author alone")
		says(own, "It is shown")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, cat, root))
		says(answer, "whose first post is hidden: it is gone")
		says(repost.ID, "whose original is hidden: it is gone")
		says(own, "It is shown")
	})
}
