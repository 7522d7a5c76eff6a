package transfer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/transfer"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// talk is a file with conversations, of which much has the same time. The ids of children sort before
// those of their parents.
const talk = `{"type":"user","id":"1","handle":"ada","homeReplies":"ALL"}
{"type":"user","id":"2","handle":"bob","suspended":true}
{"type":"user","id":"3","handle":"cat","homeReplies":"NONE"}
{"type":"post","id":"z","author":"1","text":"a root for @bob and @nobody","createdAt":"2024-02-29T12:00:00.12Z","replyAudience":"MENTIONED","quoteAudience":"FOLLOWERS"}
{"type":"post","id":"y","author":"2","text":"a reply","createdAt":"2024-02-29T12:00:00.12Z","replyTo":"z"}
{"type":"post","id":"x","author":"3","text":"@ada, below it","createdAt":"2024-02-29T12:00:00.12Z","replyTo":"y","mentions":[{"user":"3","start":0,"end":4}]}
{"type":"post","id":"b","author":"3","repostOf":"y","createdAt":"2024-02-29T12:00:00.12Z","visibility":"FOLLOWERS"}
{"type":"post","id":"a","author":"1","text":"early","createdAt":"2023-01-01T00:00:00Z","replyTo":"x","quoteOf":"z"}
{"type":"post","id":"w","author":"3","text":"@ada","createdAt":"2025-01-01T00:00:00Z","quoteOf":"z","quoteWithdrawn":true,"mentions":[]}
`

// requireCounted requires that all counters are right.
func requireCounted(w *feedtest.World) {
	w.Helper()
	counters := audit.NewRecounter(w.Stores.DB)
	users, err := counters.Users(w.Ctx, 0, 1000, false)
	require.NoError(w, err)
	posts, err := counters.Posts(w.Ctx, 0, 1000, false)
	require.NoError(w, err)
	require.Empty(w, append(users.Wrong, posts.Wrong...))
}

// An export of conversations that is imported into another database, and exported again, has the
// same bytes: parents before their children, mentions, audiences, withdrawn quotes and settings.
func TestConversationsRoundTrip(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		_, bad := take(w, talk)
		require.Empty(w, bad)
		requireCounted(w)
		cat := session.Viewer{ID: w.Stores.DB.User.Query().Where(user.Handle("cat")).OnlyX(w.Ctx).ID}
		root := w.Stores.DB.Post.Query().Where(post.ReplyAudienceEQ(schema.OnlyMentioned)).OnlyX(w.Ctx)
		require.Equal(w, []int{1, 0, 1}, []int{root.ReplyCount, root.RepostCount, root.QuoteCount})

		// What was written here is exported as well. A handle that has changed leads to its user.
		_, err := w.Feed.CreatePost(w.Ctx, cat, feed.Draft{Text: "@ada?", Visibility: new(schema.Mutuals)})
		require.NoError(w, err)
		_, err = w.Feed.Repost(w.Ctx, cat, root.ID, nil)
		require.NoError(w, err)
		ada := session.Viewer{ID: root.AuthorID}
		_, err = w.Accounts.ChangeHandle(w.Ctx, ada, "lovelace")
		require.NoError(w, err)
		// Without its parent a reply answers the root; without the root it is not in the file, nor is a
		// repost without its original.
		leaves := w.User("leaves")
		_, err = w.Accounts.UpdateProfile(w.Ctx, leaves, account.Profile{HomeReplies: new(schema.AllReplies)})
		require.NoError(w, err)
		write := func(by session.Viewer, d feed.Draft) int64 {
			w.Helper()
			p, err := w.Feed.CreatePost(w.Ctx, by, d)
			require.NoError(w, err)
			return p.ID
		}
		open := write(ada, feed.Draft{Text: "open", ReplyAudience: schema.Everyone, QuoteAudience: schema.Everyone})
		between := write(leaves, feed.Draft{Text: "between", ReplyTo: open})
		write(cat, feed.Draft{Text: "without its parent", ReplyTo: between})
		theirs := write(leaves, feed.Draft{Text: "theirs"})
		write(cat, feed.Draft{Text: "without its root", ReplyTo: theirs})
		_, err = w.Feed.Repost(w.Ctx, cat, theirs, nil)
		require.NoError(w, err)
		write(cat, feed.Draft{Text: "without its quote, @leaves", QuoteOf: theirs})
		_, _, err = w.Accounts.Delete(w.Ctx, leaves.ID, feedtest.Grace)
		require.NoError(w, err)

		first, done := give(w, false)
		require.Equal(w, transfer.Exported{Users: 3, Posts: 6 + 2 + 3, Leaving: 3, Alone: 2}, done)
		require.NotContains(w, first, `"handle":"leaves"`)
		for _, part := range []string{
			`"text":"a root for @bob and @nobody","visibility":"PUBLIC","createdAt":"2024-02-29T12:00:00.12Z","replyAudience":"MENTIONED","quoteAudience":"FOLLOWERS","mentions":[{"user":"2","start":11,"end":15}]}`,
			`"text":"a reply","visibility":"PUBLIC","createdAt":"2024-02-29T12:00:00.12Z","replyTo":"z"}`,
			`{"type":"post","id":"b","author":"3","visibility":"FOLLOWERS","createdAt":"2024-02-29T12:00:00.12Z","repostOf":"y"}`,
			`"replyTo":"y","mentions":[{"user":"3","start":0,"end":4}]}`,
			`"replyTo":"x","quoteOf":"z"}`,
			`"quoteOf":"z","quoteWithdrawn":true,"mentions":[]}`,
			`"homeReplies":"ALL"`, `"homeReplies":"NONE"`,
			`"text":"without its quote, @leaves","visibility":"PUBLIC"`,
		} {
			require.Contains(w, first, part)
		}
		require.Less(w, strings.Index(first, `"id":"z"`), strings.Index(first, `"id":"y"`))

		for _, s := range []*storage.Stores{storagetest.Embedded(w.TB), storagetest.Real(w.TB)} {
			other := feedtest.Idle(w.TB, s, feedtest.Options{})
			aged := strings.ReplaceAll(first, time.Now().UTC().Format("2006-01-02T"), "2026-06-01T")
			_, bad := take(other, aged)
			require.Empty(w, bad)
			requireCounted(other)
			second, _ := give(other, false)
			require.Equal(w, strings.Split(aged, "\n"), strings.Split(second, "\n"))
			_, bad = take(other, aged)
			require.Empty(w, bad)
		}
	})
}

// A line that names an unknown post, or that a conversation cannot have, is told with its number.
func TestBadLinesOfConversations(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{})
	lines := []struct{ line, says string }{
		{`{"type":"user","id":"1","homeReplies":"SOME"}`, `field "homeReplies": "SOME" is none of ALL`},
		{`{"type":"user","id":"1"}`, ""},
		{`{"type":"post","id":"a","author":"1","text":"a","replyTo":"b"}`, "replyTo names no post"},
		{`{"type":"post","id":"b","author":"1","text":"b","replyTo":"a"}`, "replyTo names no post"},
		{`{"type":"post","id":"c","author":"1","text":"c","replyTo":"c"}`, "replyTo names no post"},
		{`{"type":"post","id":"d","author":"1","text":"d"}`, ""},
		{`{"type":"post","id":"e","author":"1","text":"e","repostOf":"d"}`, "A repost has nothing of its own"},
		{`{"type":"post","id":"f","author":"1"}`, `field "text" is missing`},
		{`{"type":"post","id":"g","author":"1","text":"g","replyTo":"d","replyAudience":"NOBODY"}`, "audiences of its root"},
		{`{"type":"post","id":"h","author":"1","text":"h","replyAudience":"ALL"}`, `field "replyAudience": "ALL" is none of EVERYONE`},
		{`{"type":"post","id":"i","author":"1","text":"@x","mentions":[{"user":"1","start":1,"end":2}]}`, "no mention at 1 to 2"},
		{`{"type":"post","id":"j","author":"1","text":"j","quoteOf":"d"}`, ""},
		{`{"type":"post","id":"j","author":"1","text":"j","quoteOf":"zz"}`, ""}, // the quoted post may have been deleted since
		{`{"type":"post","id":"j","author":"1","text":"j"}`, "it names other posts"},
	}
	file := ""
	for _, l := range lines {
		file += l.line + "\n"
	}
	_, bad := take(w, file)
	told := map[int]string{}
	for _, b := range bad {
		told[b.line] += b.reason
	}
	for i, l := range lines {
		if l.says == "" {
			require.Empty(t, told[i+1], l.line)
		} else {
			require.Contains(t, told[i+1], l.says, "line %d", i+1)
		}
	}
}
