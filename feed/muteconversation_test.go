package feed_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// muteConversation mutes the conversation of a post, or unmutes it, and reports whether the post was answered.
func (w *world) muteConversation(v session.Viewer, id int64, mute bool) (answered bool) {
	w.Helper()
	call := w.Feed.MuteConversation
	if !mute {
		call = w.Feed.UnmuteConversation
	}
	p, err := call(w.Ctx, v, id)
	require.NoError(w, err)
	return p != nil
}

// A muted conversation leaves the home timeline, in reads from Redis and from SQL, and nothing else. The
// first post, its reposts and the viewer's own posts stay.
func TestMutedConversations(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		w.Follow(ann, bob)
		w.Follow(ann, cat)
		w.Work()
		w.AwaitInbox(ann)
		root := w.Post(bob, schema.Public)
		reply, own := w.reply(cat, root, schema.Public), w.reply(ann, root, schema.Public)
		leaf := w.reply(bob, own, schema.Public)
		passOn := func(v session.Viewer, id int64) int64 {
			p, err := w.Feed.Repost(w.Ctx, v, id, nil)
			require.NoError(w, err)
			return p.ID
		}
		ofRoot, ofReply, byAnn := passOn(cat, root), passOn(bob, reply), passOn(ann, reply)
		tagged, err := w.Feed.CreatePost(w.Ctx, cat, feed.Draft{Text: "#tide", ReplyTo: own, Visibility: new(schema.Public)})
		require.NoError(w, err)
		w.Drain()
		all := feedtest.NewestFirst(root, reply, own, leaf, ofRoot, ofReply, byAnn, tagged.ID)
		without := feedtest.NewestFirst(root, own, ofRoot, byAnn)
		shows := func(expected []int64, unread int) {
			w.Helper()
			require.Equal(w, expected, w.Walk(ann, 2, nil), "page by page")
			ranked, err := w.Home.Timeline(w.Ctx, ann, paging.Page{}, home.Ranked)
			require.NoError(w, err)
			require.ElementsMatch(w, expected, feedtest.PostIDs(ranked))
			n, err := w.Home.Unread.Count(w.Ctx, ann)
			require.NoError(w, err)
			require.Equal(w, unread, n)
			many, err := w.Home.Unread.Counts(w.Ctx, []int64{ann.ID, bob.ID})
			require.NoError(w, err)
			require.Equal(w, unread, many[ann.ID])
			list, err := w.Feed.TaggedPosts(w.Ctx, ann, "tide", paging.Page{})
			require.NoError(w, err)
			require.Equal(w, len(expected) == len(all), len(list.Edges) == 1)
		}
		shows(all, 6)
		require.True(w, w.muteConversation(ann, leaf, true), "any post of the conversation names it")
		require.True(w, w.muteConversation(ann, root, true), "again")
		shows(without, 2)
		require.Equal(w, []int64{reply, own, leaf, tagged.ID}, w.comments(ann, root), "the conversation has it still")
		list, err := w.Feed.UserPosts(w.Ctx, ann, cat.ID, paging.Page{})
		require.NoError(w, err)
		require.Equal(w, feedtest.NewestFirst(reply, ofRoot, tagged.ID), feedtest.PostIDs(list), "and so have profiles")
		require.True(w, w.sees(ann, ofReply))
		posts, err := w.Feed.Posts(w.Ctx, ann, []int64{root, leaf, ofRoot, ofReply})
		require.NoError(w, err)
		for v, expected := range map[session.Viewer]bool{ann: true, cat: false, {}: false} {
			muted, err := w.Feed.MutesConversation(w.Ctx, v, posts)
			require.NoError(w, err)
			require.Equal(w, []bool{expected, expected, expected, expected}, muted)
		}

		// The inbox keeps the posts, so the audit finds no difference, and a rebuilt inbox has them, too.
		later := w.reply(cat, own, schema.Public)
		w.Drain()
		shows(without, 2)
		found, err := w.Audit.Verify(w.Ctx, ann.ID, 0)
		require.NoError(w, err)
		require.Empty(w, append(found.Missing, found.Extra...))
		_, err = w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.True(w, w.muteConversation(ann, ofReply, false))
		require.False(w, w.muteConversation(ann, 1, false), "there is no such post")
		require.Equal(w, append([]int64{later}, all...), w.Walk(ann, 3, nil))
	})
}

// A viewer mutes the conversation of a post that they can no longer see, and unmutes it. Neither the
// answer nor anything that follows tells whether a post exists that they cannot see.
func TestMutingAConversationTellsOfNoHiddenPost(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		ann, bob, cat, dan := u[0], u[1], u[2], u[3]
		w.Follow(ann, bob)
		root := w.Post(bob, schema.Public)
		answer := w.reply(bob, root, schema.Public)
		narrow := func(to schema.Visibility) {
			w.Helper()
			_, err := w.Feed.SetVisibility(w.Ctx, bob, root, to)
			require.NoError(w, err)
		}
		muted := func(id int64) bool {
			w.Helper()
			list, err := w.Feed.MutesConversation(w.Ctx, ann, []*ent.Post{{ID: id}})
			require.NoError(w, err)
			return list[0]
		}
		home := func() []int64 { return w.Timeline(ann, 10) }
		w.reply(cat, root, schema.Public)
		for _, visibility := range []schema.Visibility{schema.Private, schema.Public} {
			narrow(visibility)
			seen := visibility == schema.Public
			require.Equal(w, seen, w.muteConversation(ann, root, true))
			narrow(schema.Public)
			require.Equal(w, []int64{root}, home())
			narrow(visibility)
			require.Equal(w, seen, w.muteConversation(ann, root, false))
			narrow(schema.Public)
			require.Equal(w, []int64{answer, root}, home())
		}

		// A hidden reply in a conversation that ann sees is like a post that does not exist.
		_, err := w.Feed.Block(w.Ctx, dan, ann.ID)
		require.NoError(w, err)
		hidden := w.reply(dan, root, schema.Public)
		for _, id := range []int64{hidden, 5} {
			before := w.Visibility.Version()
			require.False(w, w.muteConversation(ann, id, true))
			require.Greater(w, w.Visibility.Version(), before)
			require.False(w, muted(root))
			require.Equal(w, []int64{answer, root}, home())
			rows, err := w.Stores.DB.MutedConversation.Query().All(w.Ctx)
			require.NoError(w, err)
			require.Len(w, rows, 1)
			require.Equal(w, []any{id, true}, []any{rows[0].RootID, rows[0].Unseen})
			var file bytes.Buffer
			require.NoError(w, w.Accounts.Export(w.Ctx, ann.ID, &file))
			require.Contains(w, file.String(), `"post":"`+ent.NodeID("Post", id)+`","type":"mutedConversation"`)
			require.False(w, w.muteConversation(ann, id, false))
		}
		_, err = w.Feed.MuteConversation(w.Ctx, session.Viewer{}, root)
		w.RequireCode(refusal.Unauthenticated, err)
	})
}

// Users see which conversations they mute, newest mute first, without those that they may no longer see.
func TestListOfMutedConversations(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		read := func(upwards bool) []int64 {
			return walk(w.World, upwards, func(p *ent.Post) int64 { return p.ID }, func(p paging.Page) (*paging.Connection[ent.Post], error) {
				return w.Feed.MutedConversations(w.Ctx, ann, ann.ID, p)
			})
		}
		require.Empty(w, read(false))
		old, own, narrow, root, other := w.Post(bob, schema.Public), w.Post(ann, schema.Private), w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		reply, unseen := w.reply(ann, root, schema.Public), w.reply(bob, other, schema.Private)
		require.True(w, w.muteConversation(ann, narrow, true))
		require.True(w, w.muteConversation(ann, reply, true), "its root is muted")
		require.True(w, w.muteConversation(ann, own, true))
		require.False(w, w.muteConversation(ann, unseen, true), "it mutes nothing, because it is no first post")
		require.True(w, w.muteConversation(ann, old, true))
		require.True(w, w.muteConversation(bob, other, true), "another user's")
		all := []int64{old, own, root, narrow}
		require.Equal(w, all, read(false))
		require.Equal(w, all, read(true))

		_, err := w.Feed.SetVisibility(w.Ctx, bob, unseen, schema.Public)
		require.NoError(w, err)
		require.Equal(w, all, read(false))
		_, err = w.Feed.SetVisibility(w.Ctx, bob, narrow, schema.Private)
		require.NoError(w, err)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, old))
		require.Equal(w, []int64{own, root}, read(false))
		_, err = w.Feed.SetVisibility(w.Ctx, bob, narrow, schema.Public)
		require.NoError(w, err)
		w.muteConversation(ann, root, false)
		require.Equal(w, []int64{own, narrow}, read(false))
		for _, nobody := range []session.Viewer{bob, {}} {
			page, err := w.Feed.MutedConversations(w.Ctx, nobody, ann.ID, paging.Page{})
			require.NoError(w, err)
			require.Nil(w, page)
		}
	})
}

// A user mutes a bounded number of conversations. Those whose first post is gone make room, but not those
// that were muted unseen, which would tell of the post.
func TestMutedConversationsAreBounded(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		create := make([]*ent.MutedConversationCreate, feed.MaxMutedConversations-2)
		for i := range create {
			create[i] = w.Stores.DB.MutedConversation.Create().SetUserID(ann.ID).SetRootID(int64(i + 1)).SetUnseen(true)
		}
		require.NoError(w, w.Stores.DB.MutedConversation.CreateBulk(create...).Exec(w.Ctx))
		posts := []int64{w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)}
		require.True(w, w.muteConversation(ann, posts[0], true))
		require.True(w, w.muteConversation(ann, posts[1], true))
		for _, id := range []int64{posts[2], 1 << 50} {
			_, err := w.Feed.MuteConversation(w.Ctx, ann, id)
			require.Equal(w, refusal.TooMany, refusal.ReasonOf(err), "whether there is such a post or not: %v", err)
			require.ErrorContains(w, err, "At most 2000 conversations can be muted.")
		}
		require.True(w, w.muteConversation(ann, posts[1], true), "it is muted already")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, posts[0]))
		require.True(w, w.muteConversation(ann, posts[2], true), "a conversation that is gone makes room")
		_, err := w.Feed.MuteConversation(w.Ctx, ann, posts[3])
		require.Equal(w, refusal.TooMany, refusal.ReasonOf(err))
		require.False(w, w.muteConversation(ann, 7, false))
		require.True(w, w.muteConversation(ann, posts[3], true))
	})
}
