package account_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/ent/follow"
	"tideline/ent/hiddenuser"
	entjob "tideline/ent/job"
	entpost "tideline/ent/post"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// eachLater runs the test on every engine, in a World whose clock later moves forward. No workers
// run.
func eachLater(t *testing.T, test func(w *feedtest.World, later func(time.Duration))) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		w := feedtest.Idle(t, s, feedtest.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		test(w, func(d time.Duration) { ahead.Add(int64(d)) })
	})
}

// dump returns the content of SQL and Redis, one line for each row or key.
func dump(w *feedtest.World) (lines []string) {
	w.Helper()
	tables := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if w.Stores.Dialect == dialect.Postgres {
		tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	query := func(query string, row func(rows *sql.Rows)) {
		rows, err := w.Stores.SQL.QueryContext(w.Ctx, query)
		require.NoError(w, err)
		defer rows.Close()
		for rows.Next() {
			row(rows)
		}
		require.NoError(w, rows.Err())
	}
	var names []string
	query(tables, func(rows *sql.Rows) {
		var name string
		require.NoError(w, rows.Scan(&name))
		names = append(names, name)
	})
	require.Contains(w, names, "hidden_users")
	for _, table := range names {
		query(`SELECT * FROM "`+table+`"`, func(rows *sql.Rows) {
			columns, err := rows.Columns()
			require.NoError(w, err)
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			require.NoError(w, rows.Scan(values...))
			line := table + ":"
			for _, value := range values {
				value := *value.(*any)
				if text, ok := value.([]byte); ok {
					value = string(text)
				}
				line += fmt.Sprintf(" %v", value)
			}
			lines = append(lines, line)
		})
	}
	keys, err := w.Stores.Redis.Keys(w.Ctx, "*").Result()
	require.NoError(w, err)
	for _, key := range keys {
		kind, err := w.Stores.Redis.Type(w.Ctx, key).Result()
		require.NoError(w, err)
		var value any
		switch kind {
		case "string":
			value, err = w.Stores.Redis.Get(w.Ctx, key).Result()
		case "hash":
			value, err = w.Stores.Redis.HGetAll(w.Ctx, key).Result()
		case "set":
			value, err = w.Stores.Redis.SMembers(w.Ctx, key).Result()
		case "zset":
			value, err = w.Stores.Redis.ZRangeWithScores(w.Ctx, key, 0, -1).Result()
		case "stream":
			value, err = w.Stores.Redis.XRange(w.Ctx, key, "-", "+").Result()
		case "none": // it has expired in the meantime
		default:
			require.Fail(w, "keys of type "+kind+" are not known here")
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			require.NoError(w, err)
		}
		lines = append(lines, fmt.Sprintf("%s: %v", key, value))
	}
	return lines
}

// requireNoTrace requires that no row or key contains any of the texts. Keys that expire before
// the search for traces are allowed: fences of other authors, and the keys that record which
// changes a user was told of.
func requireNoTrace(w *feedtest.World, texts ...string) {
	w.Helper()
	for _, line := range dump(w) {
		for _, text := range texts {
			key, _, _ := strings.Cut(line, ": ")
			if strings.Contains(key, "}:t") || strings.HasSuffix(key, "}:f") && !strings.Contains(key, text) {
				life, err := w.Stores.Redis.TTL(w.Ctx, key).Result()
				require.NoError(w, err)
				require.LessOrEqual(w, life, 2*time.Hour)
				require.Positive(w, life)
				continue
			}
			require.NotContains(w, line, text)
		}
	}
}

func texts(ids ...int64) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatInt(id, 10)
	}
	return list
}

// circle is a user to be deleted, with data of every kind.
type circle struct {
	gone, follower, followee, friend session.Viewer
	posts                            []int64
	liked                            int64 // the friend's post that the user likes, answers, reposts, quotes and that mentions the user
	answered                         int64 // the user's post that the friend answers and quotes, and that the follower reposts
	reply                            int64 // the friend's reply to it
	repost                           int64 // the follower's repost of it
}

func newCircle(w *feedtest.World) circle {
	w.Helper()
	c := circle{gone: w.SignUp("soongone", "correct horse"), follower: w.User("follower"), followee: w.User("followee"), friend: w.User("friend")}
	stranger, shy := w.User("stranger"), w.User("shy")
	w.Stores.DB.User.UpdateOneID(shy.ID).SetApprovesFollowers(true).ExecX(w.Ctx)
	w.Follow(c.follower, c.gone)
	w.Follow(c.gone, c.followee)
	w.Befriend(c.gone, c.friend)
	w.Follow(c.gone, shy)
	_, err := w.Feed.Block(w.Ctx, c.gone, stranger.ID)
	require.NoError(w, err)
	for _, v := range []session.Viewer{c.follower, c.friend, c.gone} {
		w.AwaitInbox(v)
	}
	for _, v := range []schema.Visibility{"PUBLIC", "FOLLOWERS", "MUTUALS", "PRIVATE"} {
		c.posts = append(c.posts, w.Post(c.gone, v))
	}
	p, err := w.Feed.CreatePost(w.Ctx, c.gone, feed.Draft{Text: "once", IdempotencyKey: "once"})
	require.NoError(w, err)
	c.posts = append(c.posts, p.ID)
	for _, text := range []string{"soongone said so", "and says so"} {
		_, err = w.Feed.UpdatePost(w.Ctx, c.gone, p.ID, feed.Edit{Text: &text})
		require.NoError(w, err)
	}
	c.liked = w.Post(c.friend, "PUBLIC")
	for _, like := range []struct {
		by   session.Viewer
		post int64
	}{{c.gone, c.liked}, {c.follower, c.liked}, {c.friend, c.posts[0]}, {c.follower, c.posts[0]}} {
		_, err := w.Feed.LikePost(w.Ctx, like.by, like.post)
		require.NoError(w, err)
	}
	c.talk(w)
	_, err = w.Feed.Mute(w.Ctx, c.friend, c.gone.ID)
	require.NoError(w, err)
	_, err = w.Feed.Mute(w.Ctx, c.gone, c.friend.ID)
	require.NoError(w, err)
	w.Stores.DB.ReadMarker.Create().SetID(c.gone.ID).SetPostID(c.liked).ExecX(w.Ctx)
	for _, complaint := range []func() (bool, error){
		func() (bool, error) {
			return w.Moderation.ReportPost(w.Ctx, c.gone, c.liked, moderation.Complaint{Reason: report.ReasonSPAM})
		},
		func() (bool, error) {
			return w.Moderation.ReportPost(w.Ctx, c.follower, c.posts[0], moderation.Complaint{Reason: report.ReasonSPAM})
		},
		func() (bool, error) {
			return w.Moderation.ReportUser(w.Ctx, c.follower, stranger.ID, moderation.Complaint{Reason: report.ReasonSPAM})
		},
	} {
		reported, err := complaint()
		require.NoError(w, err)
		require.True(w, reported)
	}
	w.Stores.DB.Report.Update().SetClaimedBy(c.gone.ID).ExecX(w.Ctx)
	return c
}

// talk lets the user and others reply to, repost, quote and mention each other.
func (c *circle) talk(w *feedtest.World) {
	w.Helper()
	make := func(by session.Viewer, d feed.Draft) int64 {
		w.Helper()
		p, err := w.Feed.CreatePost(w.Ctx, by, d)
		require.NoError(w, err)
		return p.ID
	}
	repost := func(by session.Viewer, of int64) int64 {
		w.Helper()
		p, err := w.Feed.Repost(w.Ctx, by, of, nil)
		require.NoError(w, err)
		return p.ID
	}
	c.answered = make(c.gone, feed.Draft{Text: "who is @friend?"})
	c.reply = make(c.friend, feed.Draft{Text: "me", ReplyTo: c.answered})
	make(c.friend, feed.Draft{Text: "it is me", QuoteOf: c.answered})
	deleted := make(c.gone, feed.Draft{Text: "deleted before"})
	make(c.friend, feed.Draft{Text: "to a post that is gone", ReplyTo: deleted})
	require.NoError(w, w.Feed.DeletePost(w.Ctx, c.gone, deleted))
	c.repost = repost(c.follower, c.answered)
	w.Stores.DB.PostMention.Create().SetPostID(c.liked).SetUserID(c.gone.ID).SetStart(0).SetEnd(2).ExecX(w.Ctx)

	quote := make(c.gone, feed.Draft{Text: "withdrawn", QuoteOf: c.liked})
	c.posts = append(c.posts, quote, repost(c.gone, c.liked), make(c.gone, feed.Draft{Text: "look", QuoteOf: c.liked}),
		make(c.gone, feed.Draft{Text: "one", ReplyTo: c.liked}), make(c.gone, feed.Draft{Text: "two", ReplyTo: c.liked}),
		make(c.gone, feed.Draft{Text: "three", ReplyTo: c.reply}))
	_, err := w.Feed.WithdrawQuote(w.Ctx, c.friend, quote)
	require.NoError(w, err)
	make(c.followee, feed.Draft{Text: "four", ReplyTo: c.liked})

	c.requireCounts(w, 3, 1, 1)
}

// requireCounts requires the counters of the friend's post.
func (c circle) requireCounts(w *feedtest.World, replies, reposts, quotes int) {
	w.Helper()
	p := w.Stores.DB.Post.Query().Where(entpost.ID(c.liked)).Modify(rows.WithCounts).OnlyX(w.Ctx)
	require.Equal(w, []int{replies, reposts, quotes}, []int{p.ReplyCount, p.RepostCount, p.QuoteCount})
}

// requireGone requires that nothing is left of the deleted user.
func (c circle) requireGone(w *feedtest.World) {
	w.Helper()
	requireNoTrace(w, append(texts(append(c.posts, c.gone.ID)...), "soongone")...)
	friend := w.Stores.DB.User.GetX(w.Ctx, c.friend.ID)
	require.Equal(w, []int{0, 0}, []int{friend.FollowerCount, friend.FollowingCount})
	require.Zero(w, w.Stores.DB.User.GetX(w.Ctx, c.follower.ID).FollowingCount)
	require.Zero(w, w.Stores.DB.User.GetX(w.Ctx, c.followee.ID).FollowerCount)
	require.Equal(w, 1, w.Stores.DB.Report.Query().CountX(w.Ctx))
	liked := w.Stores.DB.Post.GetX(w.Ctx, c.liked)
	require.Equal(w, 1, liked.LikeCount)
	require.Equal(w, 1, w.Stores.DB.Like.Query().CountX(w.Ctx))
	require.Zero(w, w.Stores.DB.PostVersion.Query().CountX(w.Ctx))
	c.requireCounts(w, 1, 0, 0)
	reply := w.Stores.DB.Post.Query().Where(entpost.ID(c.reply)).Modify(rows.WithCounts).OnlyX(w.Ctx)
	require.Equal(w, []int64{c.answered, c.answered, 0, 0}, []int64{reply.ParentID, reply.RootID, reply.ParentAuthorID, int64(reply.ReplyCount)}, "it is still a reply, which only its author sees")
	require.False(w, w.Stores.DB.Post.Query().Where(entpost.IDIn(c.answered, c.repost)).ExistX(w.Ctx))
	require.Zero(w, w.Stores.DB.PostMention.Query().CountX(w.Ctx))
	require.Zero(w, w.Stores.DB.Delivery.Query().Where(delivery.IDIn(c.answered, c.repost)).CountX(w.Ctx))
}

func TestNothingIsLeftOfADeletedUser(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		stop := w.Work()
		c := newCircle(w)
		w.Drain()
		all := strings.Join(dump(w), "\n")
		for _, text := range append(texts(append(c.posts, c.gone.ID)...), "soongone") {
			require.Contains(w, all, text, "the dump has everything")
		}
		_, changed, err := w.Accounts.Delete(w.Ctx, c.gone.ID, 0)
		require.NoError(w, err)
		require.True(w, changed)
		w.Drain()
		stop()
		_, _, err = w.Accounts.Delete(w.Ctx, c.gone.ID, 0)
		w.RequireCode(refusal.NotFound, err)

		// A call that was running during the whole deletion leaves a trace.
		w.Stores.DB.ReadMarker.Create().SetID(c.gone.ID).SetPostID(c.liked).ExecX(w.Ctx)
		w.AwaitInbox(c.gone)
		n, err := account.EraseTraces(w.Ctx, w.Stores.DB, w.Now(), w.Timelines.Own.ForgetUser)
		require.NoError(w, err)
		require.Zero(w, n, "it is too early")
		later(4 * time.Hour)
		n, err = account.EraseTraces(w.Ctx, w.Stores.DB, w.Now(), w.Timelines.Own.ForgetUser)
		require.NoError(w, err)
		require.Equal(w, 1, n)
		c.requireGone(w)
	})
}

// A user is deleted while users post, reply, repost, quote, like and follow as fast as they can.
func TestNothingIsLeftOfAUserWhoIsDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		w.Work()
		users := w.Users(4)
		gone := users[0]
		var mu sync.Mutex
		var posts []int64
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(w.Ctx)
		defer stop()
		for i, v := range users {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					other := users[(i+1+n%3)%4]
					_, _ = w.Feed.Follow(w.Ctx, v, other.ID)
					p, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "hello", IdempotencyKey: strconv.Itoa(n)})
					if err == nil && v.ID == gone.ID {
						mu.Lock()
						posts = append(posts, p.ID)
						mu.Unlock()
					}
					mu.Lock()
					mine := slices.Clone(posts)
					mu.Unlock()
					if len(mine) > 0 {
						last := mine[len(mine)-1]
						_, _ = w.Feed.LikePost(w.Ctx, v, last)
						_, _ = w.Feed.Repost(w.Ctx, v, last, nil)
						_, _ = w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "hello, you", ReplyTo: last, QuoteOf: last})
					}
					if p != nil {
						_, _ = w.Feed.LikePost(w.Ctx, gone, p.ID)
						_, _ = w.Feed.Repost(w.Ctx, gone, p.ID, nil)
						_, _ = w.Feed.CreatePost(w.Ctx, gone, feed.Draft{Text: "hello, all", ReplyTo: p.ID, QuoteOf: p.ID})
					}
					if n%5 == 4 {
						_, _ = w.Feed.Unfollow(w.Ctx, v, other.ID)
					}
				}
			})
		}
		require.Eventually(w, func() bool { mu.Lock(); defer mu.Unlock(); return len(posts) > 5 }, time.Minute, time.Millisecond)
		_, _, err := w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.NoError(w, err)
		stop()
		all.Wait()
		w.Drain()
		later(4 * time.Hour)
		_, err = account.EraseTraces(w.Ctx, w.Stores.DB, w.Now(), w.Timelines.Own.ForgetUser)
		require.NoError(w, err)
		requireNoTrace(w, texts(gone.ID)...)
		require.False(w, w.Stores.DB.Post.Query().Where(entpost.Or(entpost.IDIn(posts...), entpost.RepostOfIn(posts...))).ExistX(w.Ctx))
		found, err := audit.NewRecounter(w.Stores.DB).Posts(w.Ctx, 0, 100_000, false)
		require.NoError(w, err)
		require.Empty(w, found.Wrong)
		for _, u := range w.Stores.DB.User.Query().AllX(w.Ctx) {
			require.Equal(w, w.Stores.DB.Follow.Query().Where(follow.FolloweeID(u.ID)).CountX(w.Ctx), u.FollowerCount)
			require.Equal(w, w.Stores.DB.Follow.Query().Where(follow.FollowerID(u.ID)).CountX(w.Ctx), u.FollowingCount)
		}
	})
}

func TestDeletedUserIsHiddenAndALogInRestores(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		w.Work()
		c := newCircle(w)
		w.Drain()
		_, err := w.Login.DeleteAccount(w.Ctx, session.Viewer{}, "")
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Login.DeleteAccount(w.Ctx, c.gone, "wrong horse")
		w.RequireCode(refusal.Forbidden, err)
		before := w.Timeline(c.follower, 10)
		require.NotEmpty(w, before)
		auth, err := w.Login.LogIn(w.Ctx, "soongone", "correct horse")
		require.NoError(w, err)
		require.False(w, auth.Restored)

		until, err := w.Login.DeleteAccount(w.Ctx, c.gone, "correct horse")
		require.NoError(w, err)
		require.WithinDuration(w, time.Now().Add(feedtest.Grace), *until, time.Minute)
		w.RequireRefused(auth.Token)
		hidden := func() {
			w.Helper()
			require.Empty(w, w.Timeline(c.follower, 10))
			for _, v := range []session.Viewer{c.follower, {}} {
				_, err = w.Feed.Post(w.Ctx, v, c.posts[0])
				w.RequireCode(refusal.NotFound, err)
				page, err := w.Feed.UserPosts(w.Ctx, v, c.gone.ID, paging.Page{})
				require.NoError(w, err)
				require.Empty(w, page.Edges)
			}
			_, err = w.Directory.User(w.Ctx, "soongone")
			w.RequireCode(refusal.NotFound, err)
			found, err := w.Directory.Search(w.Ctx, "soongone", paging.Page{})
			require.NoError(w, err)
			require.Empty(w, found.Edges)
			found, err = w.Feed.Followers(w.Ctx, c.friend.ID, paging.Page{})
			require.NoError(w, err)
			require.Empty(w, found.Edges)
			list, err := w.Directory.Users(w.Ctx, []int64{c.gone.ID})
			require.NoError(w, err)
			require.Nil(w, list[0])
			verdict, err := w.Visibility.Judge(w.Ctx, c.posts[0], []int64{c.follower.ID, c.gone.ID})
			require.NoError(w, err)
			require.False(w, verdict.Sees(c.follower.ID))
			require.False(w, verdict.Sees(c.gone.ID))
			shown, err := w.Visibility.ShownOfMany(w.Ctx, map[int64][]int64{c.follower.ID: c.posts})
			require.NoError(w, err)
			require.Equal(w, map[int64][]*ent.Post{c.follower.ID: make([]*ent.Post, len(c.posts))}, shown)
		}
		hidden()
		// Calls that were running when the user was hidden change nothing.
		_, err = w.Feed.Follow(w.Ctx, c.followee, c.gone.ID)
		w.RequireCode(refusal.NotFound, err)
		_, err = w.Feed.Follow(w.Ctx, c.follower, c.gone.ID)
		w.RequireCode(refusal.NotFound, err)
		_, err = w.Feed.Follow(w.Ctx, c.gone, c.follower.ID)
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Feed.CreatePost(w.Ctx, c.gone, feed.Draft{Text: "late"})
		w.RequireCode(refusal.Unauthenticated, err)
		w.Drain()
		w.AwaitInbox(c.follower) // an inbox that is built now contains none of the posts
		hidden()
		again, _, err := w.Accounts.Delete(w.Ctx, c.gone.ID, 2*feedtest.Grace)
		require.NoError(w, err)
		require.Equal(w, until.UnixMilli(), again.UnixMilli(), "it stays as it was")

		later(2 * feedtest.Grace)
		auth, err = w.Login.LogIn(w.Ctx, "soongone", "correct horse")
		require.NoError(w, err)
		require.True(w, auth.Restored, "nobody has begun to delete the user")
		n, err := w.Accounts.BeginDeletions(w.Ctx)
		require.NoError(w, err)
		require.Zero(w, n)
		w.Drain()
		require.Equal(w, before, w.Timeline(c.follower, 10))
		_, err = w.Feed.Post(w.Ctx, session.Viewer{}, c.posts[0])
		require.NoError(w, err)
	})
}

// Once the deletion has begun, the user cannot be restored.
func TestLogInAfterTheGracePeriodRestoresNothing(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		gone := w.SignUp("soongone", "correct horse")
		_, err := w.Login.DeleteAccount(w.Ctx, gone, "correct horse")
		require.NoError(w, err)
		n, err := w.Accounts.BeginDeletions(w.Ctx)
		require.NoError(w, err)
		require.Zero(w, n)
		later(2 * feedtest.Grace)
		n, err = w.Accounts.BeginDeletions(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, 1, n)
		_, err = w.Login.LogIn(w.Ctx, "soongone", "correct horse")
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Accounts.Restore(w.Ctx, gone.ID)
		w.RequireCode(refusal.Conflict, err)
		n, err = w.Accounts.BeginDeletions(w.Ctx)
		require.NoError(w, err)
		require.Zero(w, n)
		require.Equal(w, 1, w.Stores.DB.Job.Query().Where(entjob.Kind(job.UserDeleted)).CountX(w.Ctx))
	})
}

// After a worker died, at any page, the next attempt continues; nothing is left, and nothing is
// counted twice.
func TestErasureGoesOnWhereAWorkerDied(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		stop := w.Work()
		c := newCircle(w)
		w.Drain()
		stop()
		_, _, err := w.Accounts.Delete(w.Ctx, c.gone.ID, 0)
		require.NoError(w, err)
		w.Stores.DB.Job.Delete().Where(entjob.KindIn(job.AuthorStale, job.BaseChanged)).ExecX(w.Ctx)
		own := w.Stores.DB.Job.Query().OnlyIDX(w.Ctx)
		died := errors.New("the worker died")
		for attempts := 1; ; attempts++ {
			require.Less(w, attempts, 100)
			e, err := account.BeginErasure(w.Ctx, w.Stores.DB, c.gone.ID, w.Now)
			require.NoError(w, err)
			if e == nil {
				break
			}
			pages := 0
			e.Forget = w.Timelines.Inboxes.Forget
			e.Pace = func(context.Context) error {
				if pages++; pages == attempts {
					return died
				}
				return nil
			}
			if err = e.Run(w.Ctx, own); err != nil {
				require.ErrorIs(w, err, died)
			}
		}
		require.Equal(w, hiddenuser.StateGONE, w.Stores.DB.HiddenUser.GetX(w.Ctx, c.gone.ID).State)
		w.Stores.DB.Job.DeleteOneID(own).ExecX(w.Ctx)
		later(4 * time.Hour)
		_, err = account.EraseTraces(w.Ctx, w.Stores.DB, w.Now(), w.Timelines.Own.ForgetUser)
		require.NoError(w, err)
		require.NoError(w, w.Stores.Redis.Del(w.Ctx, streams(w)...).Err(), "nobody takes the jobs")
		c.requireGone(w)
	})
}

// A post whose row waits for the deletion of its likes has left the counters of other posts already.
func TestErasureCountsADeletedReplyOnce(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, _ func(time.Duration)) {
		gone, friend := w.User("soongone"), w.User("friend")
		asked := w.Post(friend, "PUBLIC")
		var replies []int64
		for range 3 {
			p, err := w.Feed.CreatePost(w.Ctx, gone, feed.Draft{Text: "@friend!", ReplyTo: asked, QuoteOf: asked})
			require.NoError(w, err)
			replies = append(replies, p.ID)
		}
		p, err := w.Feed.CreatePost(w.Ctx, friend, feed.Draft{Text: "one more", ReplyTo: asked})
		require.NoError(w, err)
		w.Stores.DB.Post.UpdateOneID(replies[0]).SetLikeCount(1_000_000).ExecX(w.Ctx)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, gone, replies[0]))
		require.Equal(w, schema.Deleted, w.Stores.DB.Post.GetX(w.Ctx, replies[0]).Visibility)
		circle{liked: asked}.requireCounts(w, 3, 0, 2)

		_, _, err = w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.NoError(w, err)
		own := w.Stores.DB.Job.Query().Where(entjob.Kind(job.UserDeleted)).OnlyIDX(w.Ctx)
		w.Stores.DB.Job.Delete().Where(entjob.IDNEQ(own)).ExecX(w.Ctx)
		e, err := account.BeginErasure(w.Ctx, w.Stores.DB, gone.ID, w.Now)
		require.NoError(w, err)
		e.Pace = func(context.Context) error { return nil }
		require.NoError(w, e.Run(w.Ctx, own))
		circle{liked: asked}.requireCounts(w, 1, 0, 0)
		require.Equal(w, []int64{asked, p.ID}, w.Stores.DB.Post.Query().Order(entpost.ByID()).IDsX(w.Ctx))
	})
}

func streams(w *feedtest.World) []string {
	keys, err := w.Stores.Redis.Keys(w.Ctx, "*").Result()
	require.NoError(w, err)
	return append(slices.DeleteFunc(keys, func(key string) bool {
		return w.Stores.Redis.Type(w.Ctx, key).Val() != "stream"
	}), "none")
}

// A running fan-out may put a post into an inbox that the deletion has cleared, so the deletion
// waits for it.
func TestErasureWaitsForJobsAboutTheUser(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, _ func(time.Duration)) {
		gone := w.User("soongone")
		post := w.Post(gone, "PUBLIC")
		_, _, err := w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.NoError(w, err)
		own := w.Stores.DB.Job.Query().Where(entjob.Kind(job.UserDeleted)).OnlyIDX(w.Ctx)
		run := func() error {
			e, err := account.BeginErasure(w.Ctx, w.Stores.DB, gone.ID, w.Now)
			require.NoError(w, err)
			e.Pace = func(context.Context) error { return nil }
			return e.Run(w.Ctx, own)
		}
		require.ErrorIs(w, run(), account.ErrStillInUse)
		require.True(w, w.Stores.DB.Post.Query().ExistX(w.Ctx))
		w.Stores.DB.Job.Delete().Where(entjob.KindIn(job.AuthorStale, job.BaseChanged)).ExecX(w.Ctx)
		require.ErrorIs(w, run(), account.ErrStillInUse)
		w.Stores.DB.Job.Update().Where(entjob.Kind(job.PostCreated)).SetDead(true).ExecX(w.Ctx)
		require.NoError(w, run(), "post %d", post)
		require.Equal(w, 1, w.Stores.DB.Job.Query().CountX(w.Ctx))
		require.Zero(w, w.Stores.DB.User.Query().CountX(w.Ctx))
	})
}

// A user of an issuer confirms with a fresh token, and no token restores the user.
func TestUserOfAnIssuerDeletesTheAccount(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		old := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now().Add(-time.Hour), nil))
		_, err := w.Login.DeleteAccount(w.Ctx, old, "")
		w.RequireCode(refusal.Forbidden, err)
		fresh := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil))
		require.Equal(t, old.ID, fresh.ID)
		_, err = w.Login.DeleteAccount(w.Ctx, fresh, "")
		require.NoError(t, err)
		_, _, err = w.Login.Authenticate(w.Ctx, feedtest.TokenOf(t, "app", "7", time.Now().Add(5*time.Second), nil))
		w.RequireCode(refusal.Unauthenticated, err)
		restored, err := w.Accounts.Restore(w.Ctx, fresh.ID)
		require.NoError(t, err)
		require.True(t, restored)
		restored, err = w.Accounts.Restore(w.Ctx, fresh.ID)
		require.NoError(t, err)
		require.False(t, restored)
	})
}

// A second device of a deleted user still has a token. That token does not create a new user; a
// token that the issuer signs later does.
func TestTokenOfADeletedUserMakesNobody(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		token := feedtest.TokenOf(t, "app", "7", time.Now().Add(-time.Second), nil)
		gone := w.SignIn(token)
		other := w.SignIn(feedtest.TokenOf(t, "app", "8", time.Now().Add(-time.Second), nil))
		for _, v := range []session.Viewer{gone, other} {
			_, _, err := w.Accounts.Delete(w.Ctx, v.ID, 0)
			require.NoError(t, err)
			w.Stores.DB.Job.Delete().Where(entjob.KindIn(job.AuthorStale, job.BaseChanged)).ExecX(w.Ctx)
			own := w.Stores.DB.Job.Query().Where(entjob.Kind(job.UserDeleted)).OnlyIDX(w.Ctx)
			e, err := account.BeginErasure(w.Ctx, w.Stores.DB, v.ID, w.Now)
			require.NoError(t, err)
			e.Pace = func(context.Context) error { return nil }
			require.NoError(t, e.Run(w.Ctx, own))
			w.Stores.DB.Job.DeleteOneID(own).ExecX(w.Ctx)
		}
		_, _, err := w.Login.Authenticate(w.Ctx, token)
		w.RequireCode(refusal.Unauthenticated, err)
		require.Zero(t, w.Stores.DB.User.Query().CountX(w.Ctx))
		again := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now().Add(5*time.Second), nil))
		require.NotEqual(t, gone.ID, again.ID)
	})
}

// A file is the same whether another user's post cannot be seen or does not exist.
func TestExportDoesNotTellHiddenPostsFromDeletedOnes(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		id := w.Post(bob, schema.Public)
		_, err := w.Feed.LikePost(w.Ctx, ann, id)
		require.NoError(w, err)
		_, err = w.Feed.Repost(w.Ctx, ann, id, nil)
		require.NoError(w, err)
		for _, d := range []feed.Draft{{Text: "reply", ReplyTo: id}, {Text: "quote", QuoteOf: id}} {
			_, err = w.Feed.CreatePost(w.Ctx, ann, d)
			require.NoError(w, err)
		}
		export := func() string {
			w.Drain()
			var file bytes.Buffer
			require.NoError(w, w.Accounts.Export(w.Ctx, ann.ID, &file))
			return file.String()
		}
		seen := export()
		require.Contains(w, seen, `"type":"like"`)
		require.Contains(w, seen, `"repostOf":"`+ent.NodeID("Post", id)+`"`)
		_, err = w.Feed.SetVisibility(w.Ctx, bob, id, schema.Private)
		require.NoError(w, err)
		hidden := export()
		require.NotContains(w, hidden, `"type":"like"`)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, id))
		require.Equal(w, hidden, export())
	})
}

// A hidden user changes neither handle nor profile, even with an API key that does not know it yet.
func TestHiddenUserChangesNothing(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		_, _, err := w.Accounts.Delete(w.Ctx, ann.ID, time.Hour)
		require.NoError(w, err)
		_, err = w.Accounts.ChangeHandle(w.Ctx, ann, "anna")
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Accounts.UpdateProfile(w.Ctx, ann, account.Profile{Name: new("Anna")})
		w.RequireCode(refusal.Unauthenticated, err)
		u := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		require.Equal(w, []string{"ann", "ann"}, []string{u.Handle, u.Name})
	})
}

func TestExportAccount(t *testing.T) {
	t.Parallel()
	eachLater(t, func(w *feedtest.World, later func(time.Duration)) {
		c := newCircle(w)
		_, _, err := w.Login.OfferExport(w.Ctx, c.gone, "wrong horse")
		w.RequireCode(refusal.Forbidden, err)
		secretOf := func() string {
			path, _, err := w.Login.OfferExport(w.Ctx, c.gone, "correct horse")
			require.NoError(w, err)
			secret, found := strings.CutPrefix(path, login.ExportPath+"?secret=")
			require.True(w, found)
			return secret
		}
		secret := secretOf()
		w.RequireRefused(secret)
		offer, err := w.Login.FindExport(w.Ctx, secret)
		require.NoError(w, err)
		id := offer.User
		require.Equal(w, c.gone.ID, id)
		again, err := w.Login.FindExport(w.Ctx, secret)
		require.NoError(w, err, "it was not sent yet")
		require.Equal(w, offer, again)
		require.NoError(w, w.Login.EndExport(w.Ctx, offer))
		_, err = w.Login.FindExport(w.Ctx, secret)
		w.RequireCode(refusal.Unauthenticated, err)
		secret = secretOf()
		later(time.Hour)
		_, err = w.Login.FindExport(w.Ctx, secret)
		w.RequireCode(refusal.Unauthenticated, err)

		_, err = w.Accounts.UpdateProfile(w.Ctx, c.gone, account.Profile{Links: []string{"https://gone.example"}, Data: new(`{"mine":1}`)})
		require.NoError(w, err)
		_, err = w.Feed.SetAudience(w.Ctx, c.gone, c.answered, new(schema.OnlyFollowers), new(schema.OnlyAuthors))
		require.NoError(w, err)
		w.History(c.gone, 1500) // more than a page
		var file bytes.Buffer
		require.NoError(w, w.Accounts.Export(w.Ctx, id, &file))
		counts := map[string]int{}
		for line := range strings.Lines(file.String()) {
			var fields map[string]any
			require.NoError(w, json.Unmarshal([]byte(line), &fields))
			counts[fields["type"].(string)]++
		}
		sessions := counts["session"]
		delete(counts, "session")
		require.Positive(w, sessions)
		require.Equal(w, map[string]int{"user": 1, "post": 1512, "like": 1, "follow": 2, "follower": 2, "report": 1, "request": 1, "version": 2, "block": 1, "mute": 1}, counts,
			slices.Collect(maps.Keys(counts)))
		posts := func() map[string]map[string]any { // by text
			posts := map[string]map[string]any{}
			for line := range strings.Lines(file.String()) {
				var fields map[string]any
				require.NoError(w, json.Unmarshal([]byte(line), &fields))
				if fields["type"] == "post" {
					posts[fields["text"].(string)] = fields
				}
			}
			return posts
		}
		node := func(id int64) string { return ent.NodeID("Post", id) }
		for text, want := range map[string]map[string]any{
			"three":     {"replyTo": node(c.reply), "root": node(c.answered), "replyAudience": nil},
			"":          {"repostOf": node(c.liked), "replyTo": nil, "replyAudience": nil},
			"look":      {"quoteOf": node(c.liked), "quoteWithdrawn": false, "replyAudience": "EVERYONE", "quoteAudience": "EVERYONE"},
			"withdrawn": {"quoteOf": node(c.liked), "quoteWithdrawn": true},
			"who is @friend?": {"replyCount": 1.0, "repostCount": 1.0, "quoteCount": 1.0, "quoteOf": nil, "replyAudience": "FOLLOWERS", "quoteAudience": "NOBODY", "mentions": []any{
				map[string]any{"user": ent.NodeID("User", c.friend.ID), "handle": "friend", "start": 7.0, "end": 14.0}}},
		} {
			for field, value := range want {
				require.Equal(w, value, posts()[text][field], "%s of %q", field, text)
			}
		}
		require.Contains(w, file.String(), `"homeReplies":"FOLLOWED"`)
		require.Contains(w, file.String(), `"data":{"mine":1}`)
		require.Contains(w, file.String(), `"links":["https://gone.example"]`)
		require.Contains(w, file.String(), `"text":"soongone said so"`)
		require.NotContains(w, file.String(), w.Stores.DB.User.GetX(w.Ctx, id).PasswordHash)
		w.RequireCode(refusal.NotFound, w.Accounts.Export(w.Ctx, 1, &file))

		// A hidden user looks like a user who does not exist.
		for _, v := range []session.Viewer{c.friend, c.followee} {
			_, err = w.Accounts.Suspend(w.Ctx, v.ID, account.Suspension{}, func(*ent.Tx, *ent.User) error { return nil })
			require.NoError(w, err)
		}
		file.Reset()
		require.NoError(w, w.Accounts.Export(w.Ctx, id, &file))
		for _, name := range []string{`"handle":"friend"`, `"handle":"followee"`, ent.NodeID("User", c.friend.ID), ent.NodeID("User", c.followee.ID)} {
			relations := strings.Split(file.String(), `{"comment"`)[0] // the report names the reported user
			require.NotContains(w, relations, name)
		}
		require.Contains(w, file.String(), `"handle":"follower"`)
		require.Nil(w, posts()["who is @friend?"]["mentions"])
	})
}
