package stream_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// postMinutesAgo writes a post that was made ten minutes ago.
func (w *world) postMinutesAgo(author session.Viewer) int64 {
	return w.PostAged(author, 10*time.Minute)
}

// deliverLate delivers the post to the viewer as a late fan-out does.
func (w *world) deliverLate(v session.Viewer, id int64) {
	w.Helper()
	require.NoError(w, w.Timelines.Inboxes.DeliverLate(w.Ctx, timeline.Arrival{Post: id}, []int64{v.ID}))
	w.tell(v, id)
}

func (w *world) tell(v session.Viewer, id int64) {
	w.Helper()
	_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: id}, []int64{v.ID})
	require.NoError(w, err)
}

// followed creates a reader and an author whom the reader follows, without a job.
func (w *world) followed() (ann, bob session.Viewer) {
	w.Helper()
	ann, bob = w.User("ann"), w.User("bob")
	require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
	return ann, bob
}

// pair is like followed, and also builds the reader's inbox.
func (w *world) pair() (ann, bob session.Viewer) {
	w.Helper()
	ann, bob = w.followed()
	w.AwaitInbox(ann)
	return ann, bob
}

func (l listener) position() *string {
	l.w.Helper()
	ev := l.next()
	require.IsType(l.w, &stream.PostAdded{}, ev)
	return &ev.(*stream.PostAdded).Edge.Cursor
}

// expectQuiet checks that the stream has nothing to send: it publishes a new post of the viewer, which
// must be the next event. It needs no workers.
func (l listener) expectQuiet(why string) {
	l.w.Helper()
	own := l.w.History(l.viewer, 1)[0]
	l.w.tell(l.viewer, own)
	require.Equal(l.w, own, l.added(), why)
}

// expectNothingBefore checks that the stream has nothing to send: the author writes a new post, which
// must be the next event.
func (l listener) expectNothingBefore(author session.Viewer) {
	l.w.Helper()
	require.Equal(l.w, l.w.Post(author, schema.Public), l.added())
}

// The cursor of the newest entry of a page says that the client has everything below.
func TestResumeAfterPage(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		for range 5 {
			w.Post(bob, schema.Public)
		}
		w.Drain()
		after := w.Top(ann)
		next := w.Post(bob, schema.Public)
		own, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "mine"})
		require.NoError(w, err)
		w.Drain()
		l := w.listen(ann, after)
		require.Equal(w, next, l.added())
		require.Equal(w, own.ID, l.added())
		entry, err := w.Home.Entry(w.Ctx, ann, own)
		require.NoError(w, err)
		w.listen(ann, &entry.Cursor).expectNothingBefore(bob)
	})
}

func TestRemovalsWhileAway(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		deleted, hidden := w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		l.next()
		after := l.position()
		l.close()
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, deleted))
		w.Drain()
		_, err := w.Feed.SetVisibility(w.Ctx, bob, hidden, schema.Private)
		require.NoError(w, err)
		w.Drain()
		l = w.listen(ann, after)
		first := l.next().(*stream.PostRemoved)
		l.close() // only one of the two was sent
		l = w.listen(ann, &first.Position)
		rest := l.removed()
		if rest == first.PostID { // a second removal does no harm
			rest = l.removed()
		}
		require.ElementsMatch(w, []int64{deleted, hidden}, []int64{first.PostID, rest})

		w.Post(bob, schema.Public)
		after = l.position()
		l.close()
		_, err = w.Feed.Unfollow(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		w.Drain()
		l = w.listen(ann, after)
		require.IsType(w, &stream.Invalidated{}, l.next(), "more than is told one by one")
		l.expectNothingBefore(ann)
	})
}

func TestLostInboxIsAnnounced(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.Post(bob, schema.Public)
		after := l.position()
		l.close()
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		missed := w.Post(bob, schema.Public)
		w.Drain()
		l = w.listen(ann, after)
		ev := l.next()
		require.IsType(w, &stream.Invalidated{}, ev)
		require.Equal(w, missed, l.added(), "what can be told is told")
		again := w.listen(ann, &ev.(*stream.Invalidated).Position)
		require.Equal(w, missed, again.added())
	})
}

// A reader that lags behind catches up and misses nothing.
func TestLaggingReaderCatchesUp(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		var posts []int64
		for range 150 { // more than a subscription's buffer holds
			posts = append(posts, w.Post(bob, schema.Public))
		}
		w.Drain()
		require.Eventually(w, func() bool { return w.Hub.Stats().Lagged > 0 }, 30*time.Second, time.Millisecond)
		got := make([]int64, len(posts))
		for i := range got {
			got[i] = l.added()
		}
		require.ElementsMatch(w, posts, got)
		l.expectNothingBefore(bob)
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		_, err := w.Streams.Listen(w.Ctx, ann, stream.Options{Heartbeat: time.Millisecond}, func() {})
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err))

		l := w.listenFor(ann, stream.Options{Heartbeat: time.Second})
		ev := l.next()
		require.IsType(w, &stream.Heartbeat{}, ev)
		l.close()
		missed := w.Post(bob, schema.Public)
		w.Drain()
		l = w.listenFor(ann, stream.Options{After: &ev.(*stream.Heartbeat).Position, Heartbeat: time.Hour})
		after := l.position()
		require.NotZero(w, missed)

		// When another device moves the read marker, this one receives a heartbeat at once.
		unread, err := w.Home.Unread.MarkRead(w.Ctx, ann, *after)
		require.NoError(w, err)
		require.Zero(w, unread)
		require.IsType(w, &stream.Heartbeat{}, l.next())
		_, err = w.Home.Unread.MarkRead(w.Ctx, ann, *after)
		require.NoError(w, err)
		l.expectNothingBefore(bob)
	})
}

func TestStreamThatCannotGoOnSaysSo(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.Drain()
		require.NoError(w, w.Stores.SQL.Close())
		w.tell(ann, bob.ID)
		l.ends()
		require.Error(w, l.stream.Err())
	})
}

// A post is read and checked once for all recipients of a message.
func TestOneMessageCostsAConstantNumberOfQueries(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob := w.User("bob")
		followers := w.Users(40)
		var listeners []listener
		ids := []int64{bob.ID}
		for i, v := range followers {
			if i%2 == 0 { // the others are addressed although they do not follow
				require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
				w.AwaitInbox(v) // a build would be counted
				listeners = append(listeners, w.listen(v, nil))
			}
			ids = append(ids, v.ID)
		}
		w.AwaitInbox(followers[1])
		w.AwaitInbox(bob) // without an inbox, bob would be told to read again when he changes a relation
		stranger, own := w.listen(followers[1], nil), w.listen(bob, nil)
		id := w.History(bob, 1)[0]
		count := storagetest.CountQueries(w.Stores)
		tell := func(id int64) {
			reached, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: id}, ids)
			require.NoError(w, err)
			require.Equal(w, len(listeners)+2, reached)
		}
		since := time.Now()
		tell(id)
		for _, l := range append(listeners, own) {
			require.Equal(w, id, l.added())
		}
		require.LessOrEqual(w, count(), 3*verdicts(since)+6, "three, and what is looked at now and then")

		// A viewer from whom the post is hidden meanwhile does not receive it.
		_, err := w.Feed.Block(w.Ctx, bob, followers[0].ID)
		require.NoError(w, err)
		id = w.History(bob, 1)[0]
		tell(id)
		for _, l := range append(listeners[1:], own) {
			require.Equal(w, id, l.added())
		}
		for _, l := range []listener{listeners[0], stranger} {
			mine := w.History(l.viewer, 1)[0]
			w.tell(l.viewer, mine)
			require.Equal(w, mine, l.added(), "nothing else came")
		}
	})
}

// A post is hidden and shown again before a worker handles either change. A client that read in between
// must receive the post again.
func TestHiddenAndShownAgainIsTold(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.followed()
		id := w.History(bob, 1)[0]
		w.AwaitInbox(ann)
		after := w.Top(ann)
		l := w.listen(ann, nil)
		for _, v := range []schema.Visibility{schema.Private, schema.Followers} {
			_, err := w.Feed.SetVisibility(w.Ctx, bob, id, v)
			require.NoError(w, err)
		}
		w.Work()
		require.Equal(w, id, l.removed())
		require.Equal(w, id, l.added())
		w.Drain()
		require.Equal(w, []int64{id}, w.Timeline(ann, 9))
		away := w.listen(ann, after)
		require.Equal(w, id, away.removed())
		require.Equal(w, id, away.added())
		_, err := w.Feed.SetVisibility(w.Ctx, bob, id, schema.Public)
		require.NoError(w, err)
		w.Drain()
		l.expectNothingBefore(bob)
	})
}

// failsOnce is a hook that fails the first pipeline after it is set.
type failsOnce struct{ set atomic.Bool }

func (f *failsOnce) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *failsOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *failsOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "smismember" && f.set.CompareAndSwap(true, false) {
			cmds[0].SetErr(errors.New("the worker fails here"))
			return cmds[0].Err()
		}
		return next(ctx, cmds)
	}
}

// A second attempt does not know which events the first one sent. If the change gives the post to
// nobody, it sends nothing.
func TestSecondAttemptAtAChangeTellsNothingTwice(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.followed()
		id := w.postMinutesAgo(bob)
		w.AwaitInbox(ann)
		l := w.listen(ann, nil)
		_, err := w.Feed.SetVisibility(w.Ctx, bob, id, schema.Followers)
		require.NoError(w, err)
		var hook failsOnce
		hook.set.Store(true)
		w.Stores.Redis.AddHook(&hook)
		w.Work()
		w.Drain()
		require.False(w, hook.set.Load())
		l.expectNothingBefore(bob)
	})
}

// Followers who could see a post before a change have it. They are not sent the post again, whatever
// the author's mode, the inbox and the attempt.
func TestAChangeTellsNobodyWhoHadThePost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode     user.FanOutMode
		from, to schema.Visibility
		again    bool
	}{
		"second attempt": {user.FanOutModePUSH, schema.Mutuals, schema.Public, true},
		"author pulled":  {user.FanOutModePULL, schema.Public, schema.Followers, false},
		"below floor":    {user.FanOutModePUSH, schema.Public, schema.Followers, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachIdle(t, func(w *world) {
				ann, bob := w.followed()
				require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(bob.ID).SetFolloweeID(ann.ID).Exec(w.Ctx))
				if name == "below floor" {
					w.AwaitInbox(ann) // built before the post is written
				}
				id := w.postMinutesAgo(bob)
				change := w.Stores.DB.Post.UpdateOneID(id).SetVisibility(c.from)
				require.NoError(w, change.Exec(w.Ctx))
				require.NoError(w, w.Stores.DB.User.UpdateOneID(bob.ID).SetFanOutMode(c.mode).Exec(w.Ctx))
				w.AwaitInbox(ann)
				if name == "below floor" {
					require.NoError(w, w.Timelines.Feeds.Replace(w.Ctx, ann.ID, nil, nil, id+1, false))
				}
				l := w.listen(ann, nil)
				_, err := w.Feed.SetVisibility(w.Ctx, bob, id, c.to)
				require.NoError(w, err)
				var hook failsOnce
				if hook.set.Store(c.again); c.again {
					w.Stores.Redis.AddHook(&hook)
				}
				w.Work()
				w.Drain()
				require.False(w, hook.set.Load())
				l.expectNothingBefore(bob)
			})
		})
	}
}

// A cursor without a client state names only an entry. Its client is told to read again, and does not
// receive the posts that it read a second time when they arrive.
func TestResumeWithoutClientState(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		ids := []int64{w.PostAged(bob, 100*time.Second), w.PostAged(bob, 95*time.Second)}
		// The posts reached no inbox, so the page must be read from SQL.
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		read, err := paging.Decode(*w.Top(ann), paging.Latest, ann.ID)
		require.NoError(w, err)
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		after := paging.Cursor{Score: read.Score, ID: read.ID}.Encode(paging.Latest, ann.ID)
		l := w.listen(ann, &after)
		require.IsType(w, &stream.Invalidated{}, l.next())
		w.AwaitInbox(ann)
		for _, id := range ids {
			require.NoError(w, w.Timelines.Inboxes.DeliverLate(w.Ctx, timeline.Arrival{Post: id, Again: true}, []int64{ann.ID}))
			w.tell(ann, id)
		}
		l.expectNothingBefore(ann)
	})
}

// Redis loses everything while a user reads. An inbox that is begun before its user is active again
// would lack the posts of the time in between, so it is not built.
func TestInboxOfNobodyActiveIsNotBuilt(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		storagetest.Wipe(w, w.Stores)
		require.NoError(w, w.Home.Reader.BuildInbox(w.Ctx, ann.ID))
		id := w.History(bob, 1)[0]
		pushed, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		require.Empty(w, pushed)
		_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(ann.ID), timeline.Range{})
		require.NoError(w, err)
		require.Equal(w, timeline.Missing, covered.State)
		w.AwaitInbox(ann)
		require.Equal(w, []int64{id}, w.Timeline(ann, 9))
	})
}

// A client is told that an author's posts leave its timeline, even if they never were in the inbox
// because readers merge the author.
func TestMergedAuthorLeaves(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, star := w.followed()
		// With few followers the author would return to push with this post, and the job of that
		// change would also sync the inbox.
		require.NoError(w, w.Stores.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).SetFollowerCount(1_000_000).Exec(w.Ctx))
		w.AwaitInbox(ann)
		l := w.listen(ann, nil)
		w.Post(star, schema.Public)
		after := l.position()
		_, err := w.Feed.Mute(w.Ctx, ann, star.ID)
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, l.next(), "the stream that is open")
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "one that resumes")
		w.Drain()
		l.expectQuiet("the job of the change tells nothing new")
	})
}
