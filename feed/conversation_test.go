package feed_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/conversation"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	feedjob "tideline/feed/job"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage/storagetest"
)

func eachIdle(t *testing.T, test func(w *world)) {
	feedtest.EachIdle(t, func(w *feedtest.World) { test(&world{w}) })
}

// reply replies to a post with the visibility.
func (w *world) reply(v session.Viewer, to int64, seenBy schema.Visibility) int64 {
	w.Helper()
	p, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "reply", ReplyTo: to, Visibility: &seenBy})
	require.NoError(w, err)
	return p.ID
}

// replies inserts n replies to a root, without jobs.
func (w *world) replies(v, of session.Viewer, root int64, n int) {
	w.Helper()
	list := make([]*ent.PostCreate, n)
	for i := range list {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		list[i] = w.Stores.DB.Post.Create().SetID(id).SetAuthorID(v.ID).SetText("reply").SetVisibility(schema.Public).
			SetParentID(root).SetRootID(root).SetParentAuthorID(of.ID)
	}
	for chunk := range slices.Chunk(list, 500) {
		require.NoError(w, w.Stores.DB.Post.CreateBulk(chunk...).Exec(w.Ctx))
	}
	w.Posted(v)
}

// plan returns how the database executes a query.
func (w *world) plan(query string, args ...any) (text string) {
	w.Helper()
	explain, columns := "EXPLAIN ", 1
	if w.Stores.Dialect == dialect.SQLite {
		explain, columns = "EXPLAIN QUERY PLAN ", 4
	}
	found, err := w.Stores.SQL.QueryContext(w.Ctx, explain+query, args...)
	require.NoError(w, err)
	defer found.Close()
	for found.Next() {
		row := make([]any, columns)
		for i := range row {
			row[i] = new(string)
		}
		require.NoError(w, found.Scan(row...))
		text += *row[columns-1].(*string) + "\n"
	}
	require.NoError(w, found.Err())
	return text
}

// sees reports whether the viewer is shown the post by its id.
func (w *world) sees(v session.Viewer, id int64) bool {
	w.Helper()
	posts, err := w.Feed.Posts(w.Ctx, v, []int64{id})
	require.NoError(w, err)
	return posts[0] != nil
}

// comments returns what the viewer is shown of a conversation.
func (w *world) comments(v session.Viewer, root int64) []int64 {
	w.Helper()
	list, err := w.Conversations.All(w.Ctx, v, &ent.Post{ID: root}, paging.Page{})
	require.NoError(w, err)
	return feedtest.PostIDs(list)
}

// The comments of WeChat Moments: B and C are friends of A, but not of each other. Both comment for
// their friends. D is a friend of all three.
func TestCommentsAreSeenByFriendsOfTheCommenter(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		a, b, c, d := u[0], u[1], u[2], u[3]
		for _, pair := range [][2]session.Viewer{{a, b}, {a, c}, {a, d}, {b, d}, {c, d}} {
			w.Befriend(pair[0], pair[1])
		}
		root := w.Post(a, schema.Mutuals)
		ofB, ofC := w.reply(b, root, schema.Mutuals), w.reply(c, root, schema.Mutuals)
		for viewer, expected := range map[session.Viewer][]int64{a: {ofB, ofC}, b: {ofB}, c: {ofC}, d: {ofB, ofC}} {
			require.Equal(w, expected, w.comments(viewer, root))
		}
		require.Empty(w, w.comments(session.Viewer{}, root))
	})
}

// A reply is shown only to those who see its root, and to its author.
func TestRepliesFollowTheirRoot(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		w.Follow(bob, ann)
		root := w.Post(ann, schema.Public)
		first := w.reply(bob, root, schema.Public)
		second := w.reply(cat, first, schema.Public)
		require.Equal(w, []int64{first, second}, w.comments(cat, root))
		require.True(w, w.sees(session.Viewer{}, second))

		_, err := w.Feed.SetVisibility(w.Ctx, ann, root, schema.Followers)
		require.NoError(w, err)
		require.Equal(w, []bool{true, false, true}, []bool{w.sees(bob, second), w.sees(cat, first), w.sees(cat, second)}, "cat does not follow ann")
		p, err := w.Feed.Post(w.Ctx, cat, second)
		require.NoError(w, err)
		up, err := w.Conversations.Ancestors(w.Ctx, cat, p)
		require.NoError(w, err)
		require.Empty(w, up)

		_, err = w.Feed.SetVisibility(w.Ctx, ann, root, schema.Public)
		require.NoError(w, err)
		require.True(w, w.sees(cat, first), "it comes back")

		_, err = w.Feed.HidePost(w.Ctx, root, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		require.False(w, w.sees(cat, first))
		require.True(w, w.sees(bob, first), "bob wrote it")
		_, err = w.Feed.HidePost(w.Ctx, root, false, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)

		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, first))
		require.True(w, w.sees(ann, second), "the parent is gone, the root is not")
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, root))
		require.Equal(w, []bool{false, true}, []bool{w.sees(ann, second), w.sees(cat, second)})
		_, err = w.Feed.CreatePost(w.Ctx, cat, feed.Draft{Text: "and", ReplyTo: second})
		require.Equal(w, refusal.NoSuchPost, refusal.ReasonOf(err), "the conversation is gone")
	})
}

// Whoever wrote the root or the parent is shown a reply by its id, whatever its visibility, and not in
// the profile of its author.
func TestAnsweredUsersSeeTheReply(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(3)
		ann, bob, cat := u[0], u[1], u[2]
		root := w.Post(ann, schema.Public)
		first := w.reply(bob, root, schema.Public)
		second := w.reply(cat, first, schema.Private)
		require.Equal(w, []bool{true, true, true, false}, []bool{w.sees(ann, second), w.sees(bob, second), w.sees(cat, second), w.sees(w.User("dan"), second)})
		list, err := w.Feed.UserPosts(w.Ctx, ann, cat.ID, paging.Page{})
		require.NoError(w, err)
		require.Empty(w, list.Edges)
		_, err = w.Feed.HidePost(w.Ctx, second, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		require.False(w, w.sees(ann, second), "a moderator hid it")
	})
}

// The author of a root says who may reply and quote.
func TestAudiences(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		ann, follower, friend, other := u[0], u[1], u[2], u[3]
		w.Follow(follower, ann)
		w.Befriend(friend, ann)
		named, err := w.Stores.DB.User.Get(w.Ctx, other.ID)
		require.NoError(w, err)
		for audience, expected := range map[schema.Audience][]bool{
			"": {true, true, true}, schema.Everyone: {true, true, true}, schema.OnlyFollowers: {true, true, false},
			schema.OnlyMutuals: {false, true, false}, schema.OnlyMentioned: {false, false, true}, schema.OnlyAuthors: {false, false, false},
		} {
			p, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "hello @" + named.Handle, ReplyAudience: audience, QuoteAudience: audience})
			require.NoError(w, err)
			inside := w.reply(ann, p.ID, schema.Public)
			for i, viewer := range []session.Viewer{follower, friend, other} {
				may, err := w.Conversations.Audiences(w.Ctx, viewer, []*ent.Post{p})
				require.NoError(w, err)
				require.Equal(w, []bool{expected[i], expected[i]}, []bool{may[0].MayReply, may[0].MayQuote}, "%s %d", audience, i)
				for _, d := range []feed.Draft{{ReplyTo: p.ID}, {ReplyTo: inside}, {QuoteOf: p.ID}} {
					d.Text = "me"
					_, err = w.Feed.CreatePost(w.Ctx, viewer, d)
					reason := map[bool]refusal.Reason{true: refusal.RepliesLimited, false: refusal.QuotesLimited}[d.ReplyTo != 0]
					if expected[i] {
						reason = refusal.Reason{}
					}
					require.Equal(w, reason, refusal.ReasonOf(err), "%s %d %v", audience, i, err)
				}
			}
			_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "me too", ReplyTo: p.ID, QuoteOf: p.ID})
			require.NoError(w, err)
		}
		root := w.Post(ann, schema.Public)
		nobody := schema.OnlyAuthors
		_, err = w.Feed.SetAudience(w.Ctx, ann, root, &nobody, nil)
		require.NoError(w, err)
		_, err = w.Feed.CreatePost(w.Ctx, friend, feed.Draft{Text: "me", ReplyTo: root})
		require.Equal(w, refusal.RepliesLimited, refusal.ReasonOf(err))
		_, err = w.Feed.CreatePost(w.Ctx, friend, feed.Draft{Text: "me", QuoteOf: root})
		require.NoError(w, err)
		_, err = w.Feed.Block(w.Ctx, ann, friend.ID)
		require.NoError(w, err)
		_, err = w.Feed.CreatePost(w.Ctx, friend, feed.Draft{Text: "me", QuoteOf: root})
		require.Equal(w, refusal.NoSuchPost, refusal.ReasonOf(err), "as if there were no such post")
	})
}

// The setting HomeReplies holds at the next read, and nothing is rebuilt.
func TestHomeReplies(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		reader, author, known, unknown := u[0], u[1], u[2], u[3]
		w.Follow(reader, author)
		w.Follow(reader, known)
		w.Work()
		w.AwaitInbox(reader)
		ofKnown, ofUnknown, ofReader := w.Post(known, schema.Public), w.Post(unknown, schema.Public), w.Post(reader, schema.Public)
		toKnown, toUnknown, toReader := w.reply(author, ofKnown, schema.Public), w.reply(author, ofUnknown, schema.Public), w.reply(author, ofReader, schema.Public)
		own := w.reply(reader, ofUnknown, schema.Public)
		w.Drain()
		for setting, expected := range map[schema.HomeReplies][]int64{
			schema.AllReplies:      {own, toReader, toUnknown, toKnown, ofReader, ofKnown},
			schema.FollowedReplies: {own, toReader, toKnown, ofReader, ofKnown},
			schema.NoReplies:       {own, ofReader, ofKnown},
		} {
			require.NoError(w, w.Stores.DB.User.UpdateOneID(reader.ID).SetHomeReplies(setting).Exec(w.Ctx))
			require.Equal(w, expected, w.Walk(reader, 3, nil), setting)
			n, err := w.Home.Unread.Count(w.Ctx, reader)
			require.NoError(w, err)
			unread := 0
			for _, id := range expected {
				if id != own && id != ofReader {
					unread++
				}
			}
			require.Equal(w, unread, n, setting)
			counts, err := w.Home.Unread.Counts(w.Ctx, []int64{reader.ID})
			require.NoError(w, err)
			require.Equal(w, unread, counts[reader.ID], setting)
		}
	})
}

// A repost is shown while its original is, and is made at most once.
func TestReposts(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(4)
		ann, bob, reader, other := u[0], u[1], u[2], u[3]
		w.Follow(reader, bob)
		w.Follow(bob, ann)
		w.Work()
		w.AwaitInbox(reader)
		original := w.Post(ann, schema.Public)
		repost, err := w.Feed.Repost(w.Ctx, bob, original, nil)
		require.NoError(w, err)
		again, err := w.Feed.Repost(w.Ctx, bob, repost.ID, nil)
		require.NoError(w, err)
		require.Equal(w, repost.ID, again.ID)
		second, err := w.Feed.Repost(w.Ctx, other, repost.ID, nil)
		require.NoError(w, err)
		require.Equal(w, original, second.RepostOf, "a repost of a repost leads to the original")
		w.Drain()
		require.Equal(w, []int64{repost.ID}, w.Walk(reader, 3, nil))
		p, err := w.Feed.Post(w.Ctx, ann, original)
		require.NoError(w, err)
		require.Equal(w, 2, p.RepostCount)
		own, err := w.Conversations.OwnReposts(w.Ctx, bob, []int64{original})
		require.NoError(w, err)
		require.Equal(w, repost.ID, own[0].ID)

		shown := func() bool { return len(w.Walk(reader, 3, nil)) == 1 && w.sees(reader, repost.ID) }
		_, err = w.Feed.SetVisibility(w.Ctx, ann, original, schema.Followers)
		require.NoError(w, err)
		require.False(w, shown())
		require.True(w, w.sees(bob, repost.ID), "bob follows ann")
		_, err = w.Feed.SetVisibility(w.Ctx, ann, original, schema.Private)
		require.NoError(w, err)
		require.False(w, w.sees(bob, repost.ID), "also the one who reposted")
		_, err = w.Feed.SetVisibility(w.Ctx, ann, original, schema.Public)
		require.NoError(w, err)
		require.True(w, shown())

		_, err = w.Feed.Mute(w.Ctx, reader, ann.ID)
		require.NoError(w, err)
		require.Empty(w, w.Walk(reader, 3, nil), "the author of the original is muted")
		require.True(w, w.sees(reader, repost.ID))
		_, err = w.Feed.Unmute(w.Ctx, reader, ann.ID)
		require.NoError(w, err)
		_, _, err = w.Feed.MuteWord(w.Ctx, reader, p.Text)
		require.NoError(w, err)
		require.Empty(w, w.Walk(reader, 3, nil), "a word of the original is muted")
		_, _, err = w.Feed.UnmuteWord(w.Ctx, reader, p.Text)
		require.NoError(w, err)
		require.True(w, shown())

		undone, err := w.Feed.UndoRepost(w.Ctx, bob, original)
		require.NoError(w, err)
		require.Equal(w, []any{original, 1}, []any{undone.ID, undone.RepostCount})
		require.Empty(w, w.Walk(reader, 3, nil))
		_, err = w.Feed.SetVisibility(w.Ctx, ann, original, schema.Private)
		require.NoError(w, err)
		for _, id := range []int64{original, repost.ID} { // it may be repeated
			undone, err = w.Feed.UndoRepost(w.Ctx, bob, id)
			require.NoError(w, err)
			require.Nil(w, undone)
		}

		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, original))
		w.Drain()
		exist, err := w.Stores.DB.Post.Query().Exist(w.Ctx)
		require.NoError(w, err)
		require.False(w, exist, "the reposts of a deleted post are deleted")
	})
}

// A repost that is undone before its answer is no error: a client need not wait for the one to send the other.
func TestRepostAndUndoAtTheSameTime(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		u := w.Users(2)
		original := w.Post(u[0], schema.Public)
		var calls errgroup.Group
		for range 4 {
			calls.Go(func() error {
				for range 10 {
					if p, err := w.Feed.Repost(w.Ctx, u[1], original, nil); err != nil || p.RepostOf != original {
						return fmt.Errorf("repost %v: %w", p, err)
					}
				}
				return nil
			})
			calls.Go(func() error {
				for range 10 {
					if _, err := w.Feed.UndoRepost(w.Ctx, u[1], original); err != nil {
						return fmt.Errorf("undo: %w", err)
					}
				}
				return nil
			})
		}
		require.NoError(w, calls.Wait())
	})
}

// The author of a quoted post withdraws the quote, and no count, hidden post or blocked user prevents it.
func TestQuotes(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		original := w.Post(ann, schema.Public)
		p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "look", QuoteOf: original})
		require.NoError(w, err)
		count := func() int {
			found, err := w.Feed.Post(w.Ctx, ann, original)
			require.NoError(w, err)
			return found.QuoteCount
		}
		require.Equal(w, 1, count())
		quotes, err := w.Conversations.Quotes(w.Ctx, ann, &ent.Post{ID: original}, paging.Page{})
		require.NoError(w, err)
		require.Equal(w, []int64{p.ID}, feedtest.PostIDs(quotes))
		_, err = w.Feed.WithdrawQuote(w.Ctx, bob, p.ID)
		require.Equal(w, refusal.NoSuchPost, refusal.ReasonOf(err), "bob did not write the quoted post")
		_, err = w.Feed.SetVisibility(w.Ctx, bob, p.ID, schema.Private)
		require.NoError(w, err)
		for range 2 {
			withdrawn, err := w.Feed.WithdrawQuote(w.Ctx, ann, p.ID)
			require.NoError(w, err)
			require.Nil(w, withdrawn, "ann may not see the post")
		}
		require.Zero(w, count())
		own, err := w.Feed.Post(w.Ctx, bob, p.ID)
		require.NoError(w, err)
		require.True(w, own.QuoteWithdrawn)
	})
}

// A mention leads to its user, also when the handle changes and the post is edited afterwards.
func TestMentions(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(3)
		ann, bob, blocker := u[0], u[1], u[2]
		handle := func(v session.Viewer) string {
			found, err := w.Stores.DB.User.Get(w.Ctx, v.ID)
			require.NoError(w, err)
			return found.Handle
		}
		_, err := w.Feed.Block(w.Ctx, blocker, ann.ID)
		require.NoError(w, err)
		text := "😀你好@" + handle(bob) + ", @" + handle(blocker) + " and @nobody_at_all"
		p, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: text})
		require.NoError(w, err)
		mentions := func() []conversation.Mention {
			list, err := w.Conversations.Mentions(w.Ctx, []*ent.Post{p})
			require.NoError(w, err)
			return list[0]
		}
		require.Equal(w, []conversation.Mention{{User: bob.ID, Start: 3, End: 4 + len(handle(bob))}}, mentions())
		old := handle(bob)
		_, err = w.Accounts.ChangeHandle(w.Ctx, bob, "another")
		require.NoError(w, err)
		edited := "@" + old + " @" + handle(ann)
		_, err = w.Feed.UpdatePost(w.Ctx, ann, p.ID, feed.Edit{Text: &edited})
		require.NoError(w, err)
		require.Equal(w, []conversation.Mention{{User: bob.ID, Start: 0, End: 1 + len(old)}, {User: ann.ID, Start: len(old) + 2, End: len(old) + 3 + len(handle(ann))}}, mentions())
	})
}

// Pages of a conversation, in each order.
func TestPagesOfReplies(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		var list []int64
		for i := range 7 {
			id := w.reply(bob, root, schema.Public)
			if i == 2 {
				_, err := w.Feed.LikePost(w.Ctx, ann, id)
				require.NoError(w, err)
			}
			list = append(list, id)
		}
		backwards := feedtest.NewestFirst(list...)
		top := append([]int64{list[2]}, append(append([]int64{}, list[:2]...), list[3:]...)...)
		for order, expected := range map[conversation.Order][]int64{conversation.Oldest: list, conversation.Newest: backwards, conversation.Top: top} {
			var found []int64
			page := paging.Page{First: new(3)}
			for {
				c, err := w.Conversations.Replies(w.Ctx, bob, &ent.Post{ID: root}, order, page)
				require.NoError(w, err)
				found = append(found, feedtest.PostIDs(c)...)
				if !c.HasNextPage {
					break
				}
				page.After = c.PageInfo().EndCursor
			}
			require.Equal(w, expected, found, order)
		}
		p, err := w.Feed.Post(w.Ctx, ann, root)
		require.NoError(w, err)
		require.Equal(w, 7, p.ReplyCount)
	})
}

// Every surface hides a reply at the moment when its root is narrowed, however many replies there are.
// Each step of the job takes as many statements, whether its page is small or large.
func TestNarrowingARootOfManyReplies(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(2)
		ann, bob := u[0], u[1]
		root := w.Post(ann, schema.Public)
		w.replies(bob, ann, root, 2000)
		require.NotEmpty(w, w.comments(w.User("cat"), root))
		_, err := w.Feed.SetVisibility(w.Ctx, ann, root, schema.Private)
		require.NoError(w, err)
		require.Empty(w, w.comments(w.User("dan"), root))
		jobs := func() int {
			n, err := w.Stores.DB.Job.Query().Where(job.Kind(feedjob.PostChanged)).Count(w.Ctx)
			require.NoError(w, err)
			return n
		}
		before := jobs()
		counts, fewest := []int{}, map[int]int{} // statements of each step, and the fewest by the size of the page
		after, steps := int64(0), 1
		for ; ; steps++ {
			most := 10
			if steps > 10 {
				most = 100
			}
			asked := storagetest.CountQueries(w.Stores)
			last, err := w.Feed.TellDependents(w.Ctx, root, after, feedjob.Post{}, most)
			require.NoError(w, err)
			if last == 0 {
				break
			}
			n := asked()
			if counts = append(counts, n); fewest[most] == 0 || n < fewest[most] {
				fewest[most] = n
			}
			after = last
		}
		require.Equal(w, 10+19+1, steps)
		require.Equal(w, fewest[10], fewest[100])
		slices.Sort(counts) // the world's watchers may ask in between, and SQLite may repeat its transaction
		require.Equal(w, fewest[10], counts[len(counts)/2], "a step takes as many statements each time: %v", counts)
		require.Equal(w, 2000, jobs()-before)
		changed, err := w.Stores.DB.Post.Query().Where(post.RootID(root), post.ChangedAtGT(0)).Count(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, 2000, changed)
		small := w.History(ann, 5000)[0]
		w.replies(bob, ann, small, 20) // in a table as small as this, PostgreSQL may well scan posts for a root of 2,000
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "ANALYZE")
		require.NoError(w, err)
		require.Contains(w, w.plan("SELECT * FROM posts WHERE root_id = $1 AND id > $2 AND visibility <> 'DELETED' ORDER BY id LIMIT 100", small, 0), "post_root_id_id")
		bases, steps := []int64{}, 0
		for id, found := int64(0), true; found || id > 0; steps++ {
			id, found, err = w.Visibility.Unchecked.NextBase(w.Ctx, ann.ID, id)
			require.NoError(w, err)
			if found {
				bases = append(bases, id)
			}
		}
		require.ElementsMatch(w, []int64{root, small}, bases)
		require.GreaterOrEqual(w, steps, 5, "each looks at 1,000 posts")
	})
}

// The key of a reply or quote belongs to the post that it names. A repost names its original.
func TestIdempotencyKeyOfAnotherReply(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		one, two, secret := w.Post(ann, schema.Public), w.Post(ann, schema.Public), w.Post(ann, schema.Private)
		repost, err := w.Feed.Repost(w.Ctx, ann, one, nil)
		require.NoError(w, err)
		for _, link := range []func(to int64) feed.Draft{
			func(to int64) feed.Draft { return feed.Draft{Text: "+1", IdempotencyKey: "reply", ReplyTo: to} },
			func(to int64) feed.Draft { return feed.Draft{Text: "+1", IdempotencyKey: "quote", QuoteOf: to} },
		} {
			first, err := w.Feed.CreatePost(w.Ctx, bob, link(one))
			require.NoError(w, err)
			for _, same := range []int64{one, repost.ID} {
				again, err := w.Feed.CreatePost(w.Ctx, bob, link(same))
				require.NoError(w, err)
				require.Equal(w, first.ID, again.ID)
			}
			for _, other := range []int64{two, 0} {
				_, err = w.Feed.CreatePost(w.Ctx, bob, link(other))
				require.Equal(w, refusal.KeyUsed, refusal.ReasonOf(err))
			}
			for _, unseen := range []int64{secret, secret + 1} { // the answer does not tell which of them exists
				again, err := w.Feed.CreatePost(w.Ctx, bob, link(unseen))
				require.NoError(w, err)
				require.Equal(w, first.ID, again.ID)
			}
		}
	})
}

// An author may have written any number of replies in a row that the viewer is not shown. A page of the timeline or the
// profile looks at a bounded number of them, and says where the list goes on: not with the id of a hidden post.
func TestManyHiddenRepliesInARow(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob, eve := w.User("ann"), w.User("bob"), w.User("eve")
		w.Follow(ann, bob)
		root := w.Post(eve, schema.Public)
		posts := w.History(bob, 2)
		w.replies(bob, eve, root, 3500)
		posts = feedtest.NewestFirst(append(posts, w.History(bob, 2)...)...)
		_, err := w.Feed.SetVisibility(w.Ctx, eve, root, schema.Private)
		require.NoError(w, err)
		n := 3
		for list, read := range map[paging.List]func(p paging.Page) (*paging.Connection[ent.Post], error){
			paging.Latest: func(p paging.Page) (*paging.Connection[ent.Post], error) {
				return w.Home.Timeline(w.Ctx, ann, p, home.Latest)
			},
			paging.Posts: func(p paging.Page) (*paging.Connection[ent.Post], error) {
				return w.Feed.UserPosts(w.Ctx, ann, bob.ID, p)
			},
		} {
			owner := map[paging.List]int64{paging.Latest: ann.ID, paging.Posts: bob.ID}[list]
			for _, up := range []bool{false, true} {
				var all []int64
				page, stops := paging.Page{First: &n}, 0
				if up {
					page = paging.Page{Last: &n}
				}
				for more := true; more; {
					c, err := read(page)
					require.NoError(w, err)
					info := c.PageInfo()
					if up {
						all = append(feedtest.PostIDs(c), all...)
						page.Before, more = info.StartCursor, info.HasPreviousPage
					} else {
						all = append(all, feedtest.PostIDs(c)...)
						page.After, more = info.EndCursor, info.HasNextPage
					}
					if len(c.Edges) == n || !more {
						continue
					}
					stops++
					at, err := paging.Decode(*cmp.Or(page.Before, page.After), list, owner)
					require.NoError(w, err)
					require.False(w, w.Stores.DB.Post.Query().Where(post.ID(at.ID)).ExistX(w.Ctx), "a client can read the cursor")
				}
				require.Equal(w, posts, all, "up: %v", up)
				require.GreaterOrEqual(w, stops, 3)
			}
		}
		count, err := w.Home.Unread.Count(w.Ctx, ann)
		require.NoError(w, err)
		require.Equal(w, 4, count)
	})
}

// A page of a conversation does not read the reposts of its replies, which have the same root.
func TestConversationOfRepliesThatAreReposted(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(15)
		root := w.Post(u[0], schema.Public)
		w.replies(u[1], u[0], root, 20)
		w.History(u[0], 10_000) // PostgreSQL reads a small table in another way
		w.replies(u[1], u[0], w.Post(u[0], schema.Public), 3000)
		var reposts []*ent.PostCreate
		for _, reply := range w.Stores.DB.Post.Query().Where(post.RootID(root)).IDsX(w.Ctx) {
			for _, v := range u {
				id, err := w.IDs.Next()
				require.NoError(w, err)
				reposts = append(reposts, w.Stores.DB.Post.Create().SetID(id).SetAuthorID(v.ID).SetText("").SetVisibility(schema.Public).SetRepostOf(reply).SetRootID(root))
			}
		}
		for chunk := range slices.Chunk(reposts, 500) {
			require.NoError(w, w.Stores.DB.Post.CreateBulk(chunk...).Exec(w.Ctx))
		}
		require.Len(w, w.comments(u[2], root), 20)
		_, err := w.Stores.SQL.ExecContext(w.Ctx, "ANALYZE")
		require.NoError(w, err)
		page := "SELECT id FROM posts WHERE root_id = $1 AND parent_id IS NOT NULL AND id > $2 AND id < $3 ORDER BY id ASC LIMIT 51"
		require.Contains(w, w.plan(page, root, 0, int64(1)<<62), "post_conversation")
	})
}
