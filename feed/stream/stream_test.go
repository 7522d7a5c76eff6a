package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// postMinutesAgo is aged of a post that was made ten minutes ago.
func (w *world) postMinutesAgo(author account.Viewer) int64 {
	return w.PostAged(author, 10*time.Minute)
}

// postAged writes a post that was made that long ago and has reached nobody.
func (w *world) postAged(author account.Viewer, age time.Duration) int64 {
	w.Helper()
	id, err := w.IDs.Next()
	require.NoError(w, err)
	id -= age.Milliseconds() << 12
	require.NoError(w, w.Stores.DB.Post.Create().SetID(id).SetAuthorID(author.ID).SetText("late").
		SetVisibility(schema.Public).Exec(w.Ctx))
	w.Posted(author)
	return id
}

// deliverLate is a late fan-out that has reached the viewer.
func (w *world) deliverLate(v account.Viewer, id int64) {
	w.Helper()
	require.NoError(w, w.Timelines.DeliverLate(w.Ctx, timeline.Arrival{Post: id}, []int64{v.ID}))
	w.tell(v, id)
}

func (w *world) tell(v account.Viewer, id int64) {
	w.Helper()
	_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: id}, []int64{v.ID})
	require.NoError(w, err)
}

// followed is a reader and whom the reader follows, with no job left to do.
func (w *world) followed() (ann, bob account.Viewer) {
	w.Helper()
	ann, bob = w.User("ann"), w.User("bob")
	require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
	return ann, bob
}

// pair is followed of a reader whose inbox is built.
func (w *world) pair() (ann, bob account.Viewer) {
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

// expectQuiet is expectNothingBefore without workers: the next that comes is a new post of the viewer's.
func (l listener) expectQuiet(why string) {
	l.w.Helper()
	own := l.w.History(l.viewer, 1)[0]
	l.w.tell(l.viewer, own)
	require.Equal(l.w, own, l.added(), why)
}

// expectNothingBefore says that nothing else was on its way: the next that comes is a new post.
func (l listener) expectNothingBefore(author account.Viewer) {
	l.w.Helper()
	require.Equal(l.w, l.w.Post(author, schema.Public), l.added())
}

func TestLateArrivals(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.Post(bob, schema.Public)
		before := l.position()

		first := w.postMinutesAgo(bob)
		w.deliverLate(ann, first)
		require.Equal(w, first, l.added(), "while listening")
		w.deliverLate(ann, first)
		w.tell(ann, first)
		l.expectNothingBefore(bob)
		second := w.postMinutesAgo(bob)
		w.deliverLate(ann, second)
		after := l.position()
		l.close()

		third := w.postMinutesAgo(bob)
		w.deliverLate(ann, third)
		resumed := w.listen(ann, after)
		require.Equal(w, third, resumed.added(), "while away, and nothing that was known")
		resumed.expectNothingBefore(bob)

		all := w.listen(ann, before)
		for _, id := range []int64{first, second, third} {
			require.Equal(w, id, all.added(), "late ones first, as they came")
		}
		require.Greater(w, all.added(), third)

		// A page knows what it has shown.
		page := w.listen(ann, w.Top(ann))
		page.expectNothingBefore(bob)
	})
}

// An inbox may hold what is hidden. No cursor names that, so that it is told when it
// is shown.
func TestCursorNamesNothingHidden(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		hidden, held, top := w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		for _, id := range []int64{hidden, held, top} {
			_, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
		}
		_, err := w.Feed.SetVisibility(w.Ctx, bob, hidden, schema.Private)
		require.NoError(w, err)
		page := w.Top(ann)
		l := w.listenFor(ann, stream.Options{Heartbeat: time.Second})
		position := l.next().(*stream.Heartbeat).Position
		l.close()
		_, err = w.Feed.SetVisibility(w.Ctx, bob, hidden, schema.Public)
		require.NoError(w, err)
		for _, after := range []*string{page, &position} {
			l := w.listen(ann, after)
			require.Equal(w, hidden, l.added())
			next := w.History(bob, 1)[0]
			w.tell(ann, next)
			require.Equal(w, next, l.added(), "and nothing that was named")
			l.close()
		}
	})
}

// Fan-outs overtake each other: what came in below a newer post is not missed.
func TestOvertakenArrival(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		slow, quick := w.History(bob, 1)[0], w.History(bob, 1)[0]
		deliver := func(id int64) {
			_, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
			w.tell(ann, id)
		}
		deliver(quick)
		first := l.next().(*stream.PostAdded)
		require.Equal(w, quick, first.Edge.Node.ID)
		l.close()
		page := w.Top(ann)
		deliver(slow)
		for _, after := range []*string{&first.Edge.Cursor, page} {
			resumed := w.listen(ann, after)
			require.Equal(w, slow, resumed.added())
			resumed.close()
		}
		both := w.listen(ann, w.Top(ann))
		next := w.History(bob, 1)[0]
		deliver(next)
		require.Equal(w, next, both.added(), "a page that has both misses neither")
	})
}

// The newest entry of a page stands for everything below it.
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
		l.close() // with only one of the two told
		l = w.listen(ann, &first.Position)
		rest := l.removed()
		if rest == first.PostID { // to be told again does no harm
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
		require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(ann.ID)))
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

// A reader that falls behind is brought up to date, with nothing lost on the way.
func TestLaggingReaderCatchesUp(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		var posts []int64
		for range 150 { // more than the hub holds for one
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

		// Another device reads: this one is told at once.
		unread, err := w.Home.MarkRead(w.Ctx, ann, *after)
		require.NoError(w, err)
		require.Zero(w, unread)
		require.IsType(w, &stream.Heartbeat{}, l.next())
		_, err = w.Home.MarkRead(w.Ctx, ann, *after)
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

// A post is read and checked once for all whom a message is for.
func TestOneMessageCostsAConstantNumberOfQueries(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob := w.User("bob")
		followers := w.Users(40)
		var listeners []listener
		ids := []int64{bob.ID}
		for i, v := range followers {
			if i%2 == 0 { // the others are told by mistake
				require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
				listeners = append(listeners, w.listen(v, nil))
			}
			ids = append(ids, v.ID)
		}
		stranger, own := w.listen(followers[1], nil), w.listen(bob, nil)
		id := w.History(bob, 1)[0]
		count := storagetest.CountQueries(w.Stores)
		tell := func(id int64) {
			reached, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: id}, ids)
			require.NoError(w, err)
			require.Equal(w, len(listeners)+2, reached)
		}
		tell(id)
		for _, l := range append(listeners, own) {
			require.Equal(w, id, l.added())
		}
		require.LessOrEqual(w, count(), 9, "three, as often as time runs out")

		// Whom it is hidden from meanwhile does not get it.
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

// A first attempt that changed the inbox and told nobody is made up for.
func TestChangedInboxIsToldAtLast(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		w.tell(ann, id)
		require.Equal(w, id, l.added())
		_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
		require.NoError(w, err)
		changed, err := w.Home.SyncInbox(w.Ctx, ann.ID, bob.ID)
		require.NoError(w, err)
		require.True(w, changed)
		require.NoError(w, w.Home.SyncInboxAndNotify(w.Ctx, ann.ID, bob.ID))
		require.Equal(w, id, l.removed())
	})
}

// A client is told once to read again because a relation changed: not when the event
// comes that says so and the client has been told before, nor when its stream began
// after the positions of that time were made worthless.
func TestReadAgainIsToldOnce(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		l := w.listen(ann, nil)
		publish := func(ev live.Event) {
			_, err := w.Publisher.Publish(w.Ctx, ev, []int64{ann.ID})
			require.NoError(w, err)
		}
		publish(live.Event{Kind: live.JournalChanged}) // of a fan-out; the stream comes to it later
		_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
		require.NoError(w, err)
		require.NoError(w, w.Home.SyncInboxAndNotify(w.Ctx, ann.ID, bob.ID))
		require.IsType(w, &stream.Invalidated{}, l.next())
		l.expectQuiet("the client has been told")

		require.NoError(w, w.Timelines.InvalidatePositions(w.Ctx, ann.ID))
		later := w.listen(ann, nil)
		publish(live.Event{Kind: live.Invalidated})
		later.expectQuiet("the client began to listen after that")
		require.IsType(w, &stream.Invalidated{}, l.next(), "this one did not")
	})
}

// diesBehind is a hook that lets a marked context write an id, and nothing after that.
type diesBehind struct {
	id   atomic.Int64
	dead atomic.Bool
}

// dying marks the contexts of an attempt that dies.
type dying struct{}

func (d *diesBehind) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (d *diesBehind) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (d *diesBehind) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(dying{}) == nil {
			return next(ctx, cmds)
		}
		if d.dead.Load() {
			cmds[0].SetErr(errors.New("this attempt is dead"))
			return cmds[0].Err()
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() == nil && slices.Contains(cmd.Args(), any(strconv.FormatInt(d.id.Load(), 10))) {
				d.dead.Store(true)
			}
		}
		return err
	}
}

// The attempt that changes an inbox because of a relation dies behind its write, and
// the next one finds nothing to do: clients are told to read again all the same.
func TestChangeWhoseAttemptDiesIsTold(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.History(ann, 1)
		w.AwaitInbox(ann)
		hook := &diesBehind{}
		w.Stores.Redis.AddHook(hook)
		l := w.listen(ann, nil)
		hook.id.Store(w.History(bob, 1)[0])
		for _, follows := range []bool{true, false} {
			after := w.Top(ann)
			var err error
			if follows {
				err = w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(bob.ID).Exec(w.Ctx)
			} else {
				_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
			}
			require.NoError(w, err)
			hook.dead.Store(false)
			require.Error(w, w.Home.SyncInboxAndNotify(context.WithValue(w.Ctx, dying{}, true), ann.ID, bob.ID))
			require.True(w, hook.dead.Load())
			require.NoError(w, w.Home.SyncInboxAndNotify(w.Ctx, ann.ID, bob.ID))
			own := w.History(ann, 1)[0]
			w.tell(ann, own)
			require.IsType(w, &stream.Invalidated{}, l.next(), "follows: %v", follows)
			require.Equal(w, own, l.added(), "once")
			require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "also when resuming")
		}
	})
}

// Two fan-outs of a post are at work when it is hidden: one takes it out, the other
// puts it back by what it had read, and the recheck takes that out again. The client
// is told once that the post is gone, and nothing more.
func TestTakenBackTwiceIsToldOnce(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		id, other := w.History(bob, 1)[0], w.History(bob, 1)[0]
		publish := func(kind live.Kind, id int64) {
			_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: kind, Post: id}, []int64{ann.ID})
			require.NoError(w, err)
		}
		deliver := func(id int64) {
			_, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
		}
		deliver(id)
		deliver(other)
		page := w.Top(ann)
		l := w.listen(ann, nil)
		hide := func(id int64) {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetVisibility(schema.Private).Exec(w.Ctx))
		}
		hide(id)
		require.NoError(w, w.Timelines.Withdraw(w.Ctx, []int64{id}, []int64{ann.ID}))
		publish(live.Removed, id)
		require.Equal(w, id, l.removed())
		deliver(id)
		require.NoError(w, w.Timelines.WithdrawHeld(w.Ctx, []int64{id}, []int64{ann.ID}))
		publish(live.JournalChanged, id)
		l.expectQuiet("it is known to be gone")

		// What nobody else has taken out is told all the same.
		hide(other)
		require.NoError(w, w.Timelines.WithdrawHeld(w.Ctx, []int64{other}, []int64{ann.ID}))
		publish(live.JournalChanged, other)
		require.Equal(w, other, l.removed())
		back := w.listen(ann, page)
		require.ElementsMatch(w, []int64{id, other}, []int64{back.removed(), back.removed()}, "also when resuming")
	})
}

// A client has read in SQL, because the inbox is being built, before a relation
// changed. It is told, also when the inbox is lost before that is looked at.
func TestClientThatReadWithoutAnInboxIsTold(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost=", lost), func(t *testing.T) {
			eachIdle(t, func(w *world) {
				ann, bob := w.followed()
				w.History(bob, 1)
				_, err := w.Timelines.Visit(w.Ctx, ann.ID)
				require.NoError(w, err)
				_, begun, err := w.Timelines.Begin(w.Ctx, timeline.Inbox(ann.ID))
				require.True(w, err == nil && begun)
				after := w.Top(ann)
				l := w.listen(ann, nil)
				_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
				require.NoError(w, err)
				if lost {
					require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(ann.ID)))
				}
				require.NoError(w, w.Home.SyncInboxAndNotify(w.Ctx, ann.ID, bob.ID))
				require.IsType(w, &stream.Invalidated{}, l.next())
				require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "and who comes back")
			})
		})
	}
}

// The muted must not find out, not even when nobody can tell what they have read.
func TestMuteIsNotToldToTheMuted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Befriend(ann, bob)
		w.Drain()
		for _, change := range []func(context.Context, account.Viewer, int64) (*ent.User, error){w.Feed.Mute, w.Feed.Unmute} {
			w.AwaitInbox(ann)
			w.AwaitInbox(bob)
			muting, muted := w.listen(ann, nil), w.listen(bob, nil)
			for _, v := range []account.Viewer{ann, bob} {
				require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(v.ID)))
			}
			_, err := change(w.Ctx, ann, bob.ID)
			require.NoError(w, err)
			w.Drain()
			require.IsType(w, &stream.Invalidated{}, muting.next())
			muted.expectNothingBefore(bob)
			w.Drain()
			muting.close()
			muted.close()
		}
	})
}

// What a client reads because it was told to, it did not hold before: nothing that
// was told before the reading keeps back what has to be told after it.
func TestWhatIsReadAgainIsToldAgain(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.History(bob, 1)[0]
		set := func(v schema.Visibility) {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetVisibility(v).Exec(w.Ctx))
		}
		tell := func(kind live.Kind) {
			_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: kind, Post: id, Author: bob.ID}, []int64{ann.ID})
			require.NoError(w, err)
		}
		tell(live.Added)
		require.Equal(w, id, l.added())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w, id, l.removed())
		set(schema.Public)
		require.NoError(w, w.Timelines.InvalidatePositions(w.Ctx, ann.ID)) // as all do who tell this
		tell(live.Invalidated)
		require.IsType(w, &stream.Invalidated{}, l.next())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w, id, l.removed(), "the client has read it")
		set(schema.Public)
		tell(live.Added)
		after := l.position()
		l.close()
		set(schema.Private)
		require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		l = w.listen(ann, after)
		require.IsType(w, &stream.Invalidated{}, l.next())
		set(schema.Public)
		tell(live.Added)
		require.Equal(w, id, l.added(), "the client has not found it")
	})
}

// A post that was hidden and is shown again before a worker knew of either: who
// read in between has to get it again.
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

// A client was told of a post before its fan-out came, which is later than any that
// a cursor waits for: it is not told twice.
func TestReadBeforeALateFanout(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		w := newWorld(t, s, feedtest.Options{
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.Post(bob, schema.Public) // nobody does its job
		w.tell(ann, id)
		after := l.position()
		l.close()
		ahead.Store(int64(150 * time.Second))
		l = w.listenFor(ann, stream.Options{After: after, Heartbeat: time.Second})
		ev := l.next()
		require.IsType(w, &stream.Heartbeat{}, ev)
		l.close()
		l = w.listen(ann, &ev.(*stream.Heartbeat).Position)
		w.deliverLate(ann, id)
		other := w.History(bob, 1)[0]
		w.tell(ann, other)
		require.Equal(w, other, l.added(), "nothing twice")
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

// A second attempt does not know what the first has told. Of a change that gives
// the post to nobody it tells nothing.
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

// A cursor that tells a place and no more: what its client then reads again may
// have been on its way, and is not told when it arrives.
func TestResumeAfterAPlaceOnly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		ids := []int64{w.PostAged(bob, 100*time.Second), w.PostAged(bob, 95*time.Second)}
		var after *string
		for after == nil || !strings.HasPrefix(*after, "AQ") { // its version: the inbox may be built by then
			require.NoError(w, w.Timelines.Drop(w.Ctx, timeline.Inbox(ann.ID)))
			after = w.Top(ann)
		}
		l := w.listen(ann, after)
		require.IsType(w, &stream.Invalidated{}, l.next())
		w.AwaitInbox(ann)
		for _, id := range ids {
			require.NoError(w, w.Timelines.DeliverLate(w.Ctx, timeline.Arrival{Post: id, Again: true}, []int64{ann.ID}))
			w.tell(ann, id)
		}
		l.expectNothingBefore(ann)
	})
}

// Redis forgets everything while somebody reads: an inbox that is begun before its
// user is active again would lack what is distributed in between.
func TestInboxOfNobodyActiveIsNotBuilt(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		storagetest.Wipe(w, w.Stores)
		require.NoError(w, w.Home.BuildInbox(w.Ctx, ann.ID))
		id := w.History(bob, 1)[0]
		pushed, err := w.Timelines.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		require.Empty(w, pushed)
		_, covered, err := w.Timelines.Page(w.Ctx, timeline.Inbox(ann.ID), timeline.Range{})
		require.NoError(w, err)
		require.Equal(w, timeline.Missing, covered.State)
		w.AwaitInbox(ann)
		require.Equal(w, []int64{id}, w.Timeline(ann, 9))
	})
}
