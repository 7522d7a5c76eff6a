package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/feed/session"
)

// The tests in this file are complaints of the users of other networks. Each name says how it should be.
// More of them: TestReposts, TestQuotes and TestMutedConversations in this package, "an original is shown
// once, under its newest repost" in the client kit, and TestAnOriginalIsShownOnce in web/browsertest.

// shows returns what the viewer is shown of the posts in the home timeline, in the profile of the author
// and by their ids: each in its own order.
func (w *world) shows(v, author session.Viewer, ids ...int64) (home, profile, direct []int64) {
	w.Helper()
	list, err := w.Feed.UserPosts(w.Ctx, v, author.ID, paging.Page{})
	require.NoError(w, err)
	posts, err := w.Feed.Posts(w.Ctx, v, ids)
	require.NoError(w, err)
	direct = []int64{}
	for _, p := range posts {
		if p != nil {
			direct = append(direct, p.ID)
		}
	}
	return append([]int64{}, w.Walk(v, 5, nil)...), feedtest.PostIDs(list), direct
}

// A repost, of a post or of a reply, is not shown while the author of the original is suspended, or the
// author of the conversation. It comes back with them.
func TestARepostOfASuspendedAuthorsPostIsNotShown(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		reader, reposter, author, replier := u[0], u[1], u[2], u[3]
		w.Follow(reader, reposter)
		w.Work()
		w.AwaitInbox(reader)
		original := w.Post(author, schema.Public)
		reply := w.reply(replier, original, schema.Public)
		passOn := func(id int64) int64 {
			p, err := w.Feed.Repost(w.Ctx, reposter, id, nil)
			require.NoError(w, err)
			return p.ID
		}
		ofPost, ofReply := passOn(original), passOn(reply)
		w.Drain()
		all := []int64{ofReply, ofPost}
		check := func(expected []int64) {
			w.Helper()
			home, profile, direct := w.shows(reader, reposter, all...)
			require.Equal(w, [][]int64{expected, expected, expected}, [][]int64{home, profile, direct})
			n, err := w.Home.Unread.Count(w.Ctx, reader)
			require.NoError(w, err)
			require.Equal(w, len(expected), n)
			list, err := w.Conversations.Reposts(w.Ctx, reader, &ent.Post{ID: original}, paging.Page{})
			require.NoError(w, err)
			require.Equal(w, len(expected) == 2, len(list.Edges) == 1)
		}
		none := func(*ent.Tx, *ent.User) error { return nil }
		check(all)
		for _, suspended := range []struct {
			author session.Viewer
			left   []int64
		}{{author, []int64{}}, {replier, []int64{ofPost}}} {
			_, err := w.Accounts.Suspend(w.Ctx, suspended.author.ID, account.Suspension{}, none)
			require.NoError(w, err)
			home, profile, direct := w.shows(reader, reposter, all...)
			require.Equal(w, [][]int64{suspended.left, suspended.left, suspended.left}, [][]int64{home, profile, direct})
			w.Drain()
			require.Equal(w, suspended.left, append([]int64{}, w.Walk(reader, 5, nil)...))
			_, err = w.Accounts.Unsuspend(w.Ctx, suspended.author.ID, none)
			require.NoError(w, err)
			w.Drain()
			check(all)
		}
	})
}

// The mute of an author keeps reposts of the author's posts out of the home timeline, and reposts of
// replies in the author's conversations. Profiles and the posts themselves are as before.
func TestARepostOfAMutedAuthorsPostIsNotInTheTimeline(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		reader, reposter, author, replier := u[0], u[1], u[2], u[3]
		w.Follow(reader, reposter)
		w.Work()
		w.AwaitInbox(reader)
		original := w.Post(author, schema.Public)
		reply := w.reply(replier, original, schema.Public)
		ofPost, err := w.Feed.Repost(w.Ctx, reposter, original, nil)
		require.NoError(w, err)
		ofReply, err := w.Feed.Repost(w.Ctx, reposter, reply, nil)
		require.NoError(w, err)
		w.Drain()
		all := []int64{ofReply.ID, ofPost.ID}
		for muted, left := range map[session.Viewer][]int64{author: {}, replier: {ofPost.ID}} {
			_, err := w.Feed.Mute(w.Ctx, reader, muted.ID)
			require.NoError(w, err)
			home, profile, direct := w.shows(reader, reposter, all...)
			require.Equal(w, [][]int64{left, all, all}, [][]int64{home, profile, direct})
			_, err = w.Feed.Unmute(w.Ctx, reader, muted.ID)
			require.NoError(w, err)
			require.Equal(w, all, w.Walk(reader, 5, nil))
		}
	})
}

// The mute of somebody who replied takes the reply from the timeline, and never the post that it answers.
func TestMutingSomebodyWhoRepliedLeavesTheParent(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		reader, author, replier, third := u[0], u[1], u[2], u[3]
		for _, v := range u[1:] {
			w.Follow(reader, v)
		}
		w.Work()
		w.AwaitInbox(reader)
		root := w.Post(author, schema.Public)
		reply := w.reply(replier, root, schema.Public)
		toReply, toRoot := w.reply(third, reply, schema.Public), w.reply(third, root, schema.Public)
		w.Drain()
		require.Equal(w, []int64{toRoot, toReply, reply, root}, w.Walk(reader, 3, nil))
		_, err := w.Feed.Mute(w.Ctx, reader, replier.ID)
		require.NoError(w, err)
		require.Equal(w, []int64{toRoot, toReply, root}, w.Walk(reader, 3, nil))
		require.Equal(w, []int64{reply, toReply, toRoot}, w.comments(reader, root), "the conversation is as it was")
		w.Drain()
		w.AwaitInbox(reader)
		require.Equal(w, []int64{toRoot, toReply, root}, w.Walk(reader, 3, nil), "from the inbox")
	})
}

// A repost of a reply stays when the post that the reply answers is deleted, hidden or narrowed: only the
// first post of the conversation decides.
func TestARepostOfAReplyWhoseParentIsGoneStays(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		reader, reposter, author, replier := u[0], u[1], u[2], u[3]
		w.Follow(reader, reposter)
		w.Work()
		w.AwaitInbox(reader)
		root := w.Post(author, schema.Public)
		parent := w.reply(replier, root, schema.Public)
		reply := w.reply(author, parent, schema.Public)
		repost, err := w.Feed.Repost(w.Ctx, reposter, reply, nil)
		require.NoError(w, err)
		w.Drain()
		stays := func(why string) {
			w.Helper()
			home, profile, direct := w.shows(reader, reposter, repost.ID, reply)
			require.Equal(w, [][]int64{{repost.ID}, {repost.ID}, {repost.ID, reply}}, [][]int64{home, profile, direct}, why)
		}
		stays("at first")
		_, err = w.Feed.HidePost(w.Ctx, parent, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		stays("the parent is hidden")
		_, err = w.Feed.HidePost(w.Ctx, parent, false, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		_, err = w.Feed.SetVisibility(w.Ctx, replier, parent, schema.Private)
		require.NoError(w, err)
		stays("the parent is narrowed")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, replier, parent))
		stays("the parent is deleted")
		w.Drain()
		stays("and its jobs are done")
		_, err = w.Audit.Rebuild(w.Ctx, reader.ID)
		require.NoError(w, err)
		stays("the inbox is rebuilt")
	})
}

// A post that many reposted is one entry for each repost, and each entry leaves alone: the others stay
// when one repost is undone. So a client that shows the original once has it under the next repost.
func TestUndoingOneOfManyRepostsLeavesTheOthers(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(5)
		reader, author, reposters := u[0], u[1], u[2:]
		w.Work()
		w.AwaitInbox(reader)
		original := w.Post(author, schema.Public)
		var list []int64
		for _, v := range reposters {
			w.Follow(reader, v)
			p, err := w.Feed.Repost(w.Ctx, v, original, nil)
			require.NoError(w, err)
			list = append(list, p.ID)
		}
		w.Drain()
		require.Equal(w, feedtest.NewestFirst(list...), w.Walk(reader, 2, nil))
		for i := len(list) - 1; i >= 0; i-- {
			_, err := w.Feed.UndoRepost(w.Ctx, reposters[i], original)
			require.NoError(w, err)
			require.Equal(w, append([]int64{}, feedtest.NewestFirst(list[:i]...)...), append([]int64{}, w.Walk(reader, 2, nil)...))
		}
	})
}
