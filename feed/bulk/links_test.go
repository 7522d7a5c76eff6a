package bulk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/audit"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/ids"
	"tideline/feed/session"
	"tideline/feed/stream"
)

// requireCounted requires that all counters are right.
func requireCounted(w *feedtest.World) {
	w.Helper()
	counters := audit.NewRecounter(w.Stores.DB)
	for _, of := range []func() (audit.Recounted, error){
		func() (audit.Recounted, error) { return counters.Users(w.Ctx, 0, 1000, false) },
		func() (audit.Recounted, error) { return counters.Posts(w.Ctx, 0, 1000, false) },
	} {
		r, err := of()
		require.NoError(w, err)
		require.Empty(w, r.Wrong)
	}
}

// Replies, reposts and quotes name posts of earlier rows and calls, and the counters are right at
// once.
func TestPostsThatNameOthers(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob", "cat")
		first := upsertPosts(w, bulk.Post{ExternalID: "old", Author: "ann", Text: "an old one", CreatedAt: ago(48 * time.Hour), ReplyAudience: new(schema.OnlyAuthors)})
		rows := []bulk.Post{
			{ExternalID: "root", Author: "ann", Text: "a root", CreatedAt: ago(24 * time.Hour)},
			{ExternalID: "reply", Author: "bob", Text: "a reply", CreatedAt: ago(23 * time.Hour), ReplyTo: "root"},
			{ExternalID: "below", Author: "cat", Text: "below it", CreatedAt: ago(30 * time.Hour), ReplyTo: "reply", QuoteOf: "old"},
			{ExternalID: "repost", Author: "cat", CreatedAt: ago(20 * time.Hour), RepostOf: "reply"},
			{ExternalID: "again", Author: "bob", RepostOf: "repost"},
			{ExternalID: "passed", Author: "bob", Text: "to the original", ReplyTo: "repost"},
			{ExternalID: "limited", Author: "bob", Text: "the sender decides", ReplyTo: "old"},
			{ExternalID: "quote", Author: "bob", Text: "a quote", QuoteOf: "root", QuoteWithdrawn: true},
		}
		posts := upsertPosts(w, rows...)
		get := func(id int64) *ent.Post { return w.Stores.DB.Post.GetX(w.Ctx, id) }
		links := func(i int) []int64 {
			p := get(posts[i])
			return []int64{p.ParentID, p.ParentAuthorID, p.RootID, p.RepostOf, p.QuoteOf}
		}
		require.Equal(w, []int64{0, 0, 0, 0, 0}, links(0))
		require.Equal(w, []int64{posts[0], users[0].ID, posts[0], 0, 0}, links(1))
		require.Equal(w, []int64{posts[1], users[1].ID, posts[0], 0, first[0]}, links(2))
		require.Equal(w, []int64{0, 0, posts[0], posts[1], 0}, links(3))
		require.Equal(w, []int64{0, 0, posts[0], posts[1], 0}, links(4))
		require.Equal(w, []int64{posts[1], users[1].ID, posts[0], 0, 0}, links(5))
		require.Equal(w, []int64{first[0], users[0].ID, first[0], 0, 0}, links(6))
		require.Equal(w, []int64{0, 0, 0, 0, posts[0]}, links(7))
		require.False(w, ids.TimeOf(posts[2]).Before(ids.TimeOf(posts[1])), "no reply is older than its parent")
		require.Equal(w, schema.OnlyAuthors, get(first[0]).ReplyAudience)
		require.Equal(w, []int{2, 2, 0}, []int{get(posts[1]).ReplyCount, get(posts[1]).RepostCount, get(posts[0]).QuoteCount})
		require.Equal(w, []int{2, 1, 0}, []int{
			w.Stores.DB.User.GetX(w.Ctx, users[0].ID).PostCount, w.Stores.DB.User.GetX(w.Ctx, users[1].ID).PostCount, w.Stores.DB.User.GetX(w.Ctx, users[2].ID).PostCount})
		requireCounted(w)

		again, err := w.Bulk.Posts(w.Ctx, app, rows)
		require.NoError(w, err)
		require.Equal(w, "UNCHANGED UNCHANGED UNCHANGED UNCHANGED UNCHANGED UNCHANGED UNCHANGED UNCHANGED", statuses(again))
		rows[1].ReplyTo, rows[2].QuoteOf, rows[5].ReplyTo = "old", "", ""
		again, err = w.Bulk.Posts(w.Ctx, app, []bulk.Post{rows[1], rows[2], rows[5]})
		require.NoError(w, err)
		require.Equal(w, "CONFLICT CONFLICT CONFLICT", statuses(again))

		require.NoError(w, w.Feed.DeletePost(w.Ctx, users[1], posts[1]))
		again, err = w.Bulk.Posts(w.Ctx, app, []bulk.Post{rows[2], {ExternalID: "late", Author: "bob", Text: "x", ReplyTo: "reply"}})
		require.NoError(w, err)
		require.Equal(w, "CONFLICT NOT_FOUND", statuses(again))
	})
}

// Rows that name unknown posts are refused, so a cycle cannot be built. So are posts that cannot be.
func TestPostsThatNameWhatTheyMayNot(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob", "eve")
		upsertPosts(w, bulk.Post{ExternalID: "root", Author: "ann", Text: "a root"}, bulk.Post{ExternalID: "leaves", Author: "eve", Text: "soon gone"},
			bulk.Post{ExternalID: "mine", Author: "bob", RepostOf: "root"})
		_, _, err := w.Accounts.Delete(w.Ctx, users[2].ID, feedtest.Grace)
		require.NoError(w, err)
		everyone := schema.Everyone
		results, err := w.Bulk.Posts(w.Ctx, app, []bulk.Post{
			{ExternalID: "a", Author: "ann", Text: "a", ReplyTo: "b"},
			{ExternalID: "b", Author: "ann", Text: "b", ReplyTo: "a"},
			{ExternalID: "self", Author: "ann", Text: "self", ReplyTo: "self"},
			{ExternalID: "c", Author: "ann", Text: "c", QuoteOf: "nothing"},
			{ExternalID: "d", Author: "ann", Text: "d", ReplyTo: "leaves"},
			{ExternalID: "e", Author: "ann", Text: "e", ReplyTo: "d"},
			{ExternalID: "f", Author: "bob", RepostOf: "root"},
			{ExternalID: "g", Author: "ann", RepostOf: "root"},
			{ExternalID: "h", Author: "ann", RepostOf: "root"},
			{ExternalID: "i", Author: "ann", Text: "text", RepostOf: "root"},
			{ExternalID: "j", Author: "ann", RepostOf: "root", Data: new(`{"a":1}`)},
			{ExternalID: "k", Author: "ann", Text: "text", ReplyTo: "root", ReplyAudience: &everyone},
			{ExternalID: "l", Author: "ann", Text: "hello @bob", Mentions: []bulk.Mention{{User: "bob", Start: 0, End: 4}}},
			{ExternalID: "m", Author: "ann", Text: "", ReplyTo: "root"},
		})
		require.NoError(w, err)
		require.Equal(w, "NOT_FOUND NOT_FOUND NOT_FOUND NOT_FOUND NOT_FOUND NOT_FOUND CONFLICT CREATED CONFLICT"+
			" BAD_USER_INPUT BAD_USER_INPUT BAD_USER_INPUT BAD_USER_INPUT BAD_USER_INPUT", statuses(results))
		require.Contains(w, *results[0].Message(), "replyTo names no post of an earlier row or call")
		require.Equal(w, 2, w.Stores.DB.Post.Query().Where(post.RepostOfNotNil()).CountX(w.Ctx))
		requireCounted(w)
	})
}

// Handles in a text are mentions, as in a post that is written here, unless the row has mentions.
func TestPostsWithMentions(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob", "eve")
		for i, handle := range []string{"ann", "bob", "eve"} {
			w.Stores.DB.User.UpdateOneID(users[i].ID).SetHandle(handle).ExecX(w.Ctx)
		}
		_, err := w.Feed.Block(w.Ctx, users[2], users[0].ID)
		require.NoError(w, err)
		posts := upsertPosts(w,
			bulk.Post{ExternalID: "found", Author: "ann", Text: "你好@bob, @eve and @nobody"},
			bulk.Post{ExternalID: "given", Author: "ann", Text: "@bobby is @bob now", Mentions: []bulk.Mention{{User: "bob", Start: 0, End: 6}, {User: "unknown", Start: 10, End: 14}}},
			bulk.Post{ExternalID: "none", Author: "ann", Text: "@bob", Mentions: []bulk.Mention{}})
		mentions := func(id int64) (list [][3]int64) {
			for _, m := range w.Stores.DB.PostMention.Query().Where(postmention.PostID(id)).Order(ent.Asc(postmention.FieldStart)).AllX(w.Ctx) {
				list = append(list, [3]int64{m.UserID, int64(m.Start), int64(m.End)})
			}
			return list
		}
		require.Equal(w, [][3]int64{{users[1].ID, 2, 6}}, mentions(posts[0]))
		require.Equal(w, [][3]int64{{users[1].ID, 0, 6}}, mentions(posts[1]))
		require.Empty(w, mentions(posts[2]))
		_, err = w.Feed.UpdatePost(w.Ctx, users[0], posts[1], feed.Edit{Text: new("Was it @bobby?")})
		require.NoError(w, err)
		require.Equal(w, [][3]int64{{users[1].ID, 7, 13}}, mentions(posts[1]), "the handle still leads to the user")
	})
}

// The watchers of a conversation are sent a reply that is written now, and read again after replies with
// old times.
func TestRepliesReachThoseWhoWatch(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob")
		root := upsertPosts(w, bulk.Post{ExternalID: "root", Author: "ann", Text: "a root", CreatedAt: ago(48 * time.Hour), Visibility: new(schema.Public)})[0]
		w.Drain()
		news := make(chan struct{}, 100)
		s, err := w.Streams.ListenConversation(w.Ctx, session.Viewer{ID: users[1].ID}, root, nil, func() { news <- struct{}{} })
		require.NoError(w, err)
		next := func() stream.ConversationEvent {
			for {
				if ev, ok := s.Next(w.Ctx); ok {
					return ev
				}
				<-news
			}
		}
		reply := upsertPosts(w, bulk.Post{ExternalID: "now", Author: "ann", Text: "now", ReplyTo: "root", Visibility: new(schema.Public)})[0]
		added, ok := next().(*stream.ConversationPostAdded)
		require.True(w, ok)
		require.Equal(w, reply, added.Post.ID)
		upsertPosts(w, bulk.Post{ExternalID: "then", Author: "ann", Text: "then", CreatedAt: ago(24 * time.Hour), ReplyTo: "root", Visibility: new(schema.Public)})
		require.IsType(w, &stream.ConversationInvalidated{}, next())
	})
}
