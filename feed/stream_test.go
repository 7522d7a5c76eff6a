package feed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// postMinutesAgo is aged of a post that was made ten minutes ago.
func (w *world) postMinutesAgo(author feed.Viewer) int64 { return w.postAged(author, 10*time.Minute) }

// postAged writes a post that was made that long ago and has reached nobody.
func (w *world) postAged(author feed.Viewer, age time.Duration) int64 {
	w.t.Helper()
	id, err := w.ids.Next()
	require.NoError(w.t, err)
	id -= age.Milliseconds() << 12
	require.NoError(w.t, w.s.DB.Post.Create().SetID(id).SetAuthorID(author.ID).SetText("late").
		SetVisibility(schema.Public).Exec(w.ctx))
	w.posted(author)
	return id
}

// deliverLate is a late fan-out that has reached the viewer.
func (w *world) deliverLate(v feed.Viewer, id int64) {
	w.t.Helper()
	require.NoError(w.t, w.tl.DeliverLate(w.ctx, timeline.Arrival{Post: id}, []int64{v.ID}))
	w.tell(v, id)
}

func (w *world) tell(v feed.Viewer, id int64) {
	w.t.Helper()
	_, err := w.pub.Publish(w.ctx, live.Event{Kind: live.Added, Post: id}, []int64{v.ID})
	require.NoError(w.t, err)
}

// followed is a reader and whom the reader follows, with no job left to do.
func (w *world) followed() (ann, bob feed.Viewer) {
	w.t.Helper()
	ann, bob = w.user("ann"), w.user("bob")
	require.NoError(w.t, w.s.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(bob.ID).Exec(w.ctx))
	return ann, bob
}

// pair is followed of a reader whose inbox is built.
func (w *world) pair() (ann, bob feed.Viewer) {
	w.t.Helper()
	ann, bob = w.followed()
	w.ready(ann)
	return ann, bob
}

// top is the cursor of the newest entry, as a page has it.
func (w *world) top(v feed.Viewer) *string {
	w.t.Helper()
	one := 1
	c, err := w.feed.Timeline(w.ctx, v, feed.Page{First: &one}, feed.Latest)
	require.NoError(w.t, err)
	require.Len(w.t, c.Edges, 1)
	return &c.Edges[0].Cursor
}

func (l listener) position() *string {
	l.w.t.Helper()
	ev := l.next()
	require.IsType(l.w.t, &feed.PostAdded{}, ev)
	return &ev.(*feed.PostAdded).Edge.Cursor
}

// expectNothingBefore says that nothing else was on its way: the next that comes is a new post.
func (l listener) expectNothingBefore(author feed.Viewer) {
	l.w.t.Helper()
	require.Equal(l.w.t, l.w.post(author, schema.Public), l.added())
}

func TestLateArrivals(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.post(bob, schema.Public)
		before := l.position()

		first := w.postMinutesAgo(bob)
		w.deliverLate(ann, first)
		require.Equal(w.t, first, l.added(), "while listening")
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
		require.Equal(w.t, third, resumed.added(), "while away, and nothing that was known")
		resumed.expectNothingBefore(bob)

		all := w.listen(ann, before)
		for _, id := range []int64{first, second, third} {
			require.Equal(w.t, id, all.added(), "late ones first, as they came")
		}
		require.Greater(w.t, all.added(), third)

		// A page knows what it has shown.
		page := w.listen(ann, w.top(ann))
		page.expectNothingBefore(bob)
	})
}

// An inbox may hold what is hidden. No cursor names that, so that it is told when it
// is shown.
func TestCursorNamesNothingHidden(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		hidden, held, top := w.post(bob, schema.Public), w.post(bob, schema.Public), w.post(bob, schema.Public)
		for _, id := range []int64{hidden, held, top} {
			_, err := w.tl.Deliver(w.ctx, id, []int64{ann.ID})
			require.NoError(w.t, err)
		}
		_, err := w.feed.SetVisibility(w.ctx, bob, hidden, schema.Private)
		require.NoError(w.t, err)
		page := w.top(ann)
		l := w.listenFor(ann, feed.Listening{Heartbeat: time.Second})
		position := l.next().(*feed.Heartbeat).Position
		l.close()
		_, err = w.feed.SetVisibility(w.ctx, bob, hidden, schema.Public)
		require.NoError(w.t, err)
		for _, after := range []*string{page, &position} {
			l := w.listen(ann, after)
			require.Equal(w.t, hidden, l.added())
			next := w.history(bob, 1)[0]
			w.tell(ann, next)
			require.Equal(w.t, next, l.added(), "and nothing that was named")
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
		slow, quick := w.history(bob, 1)[0], w.history(bob, 1)[0]
		deliver := func(id int64) {
			_, err := w.tl.Deliver(w.ctx, id, []int64{ann.ID})
			require.NoError(w.t, err)
			w.tell(ann, id)
		}
		deliver(quick)
		first := l.next().(*feed.PostAdded)
		require.Equal(w.t, quick, first.Edge.Node.ID)
		l.close()
		page := w.top(ann)
		deliver(slow)
		for _, after := range []*string{&first.Edge.Cursor, page} {
			resumed := w.listen(ann, after)
			require.Equal(w.t, slow, resumed.added())
			resumed.close()
		}
		both := w.listen(ann, w.top(ann))
		next := w.history(bob, 1)[0]
		deliver(next)
		require.Equal(w.t, next, both.added(), "a page that has both misses neither")
	})
}

// The newest entry of a page stands for everything below it.
func TestResumeAfterPage(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		for range 5 {
			w.post(bob, schema.Public)
		}
		w.settle()
		after := w.top(ann)
		next := w.post(bob, schema.Public)
		own, err := w.feed.CreatePost(w.ctx, ann, feed.Draft{Text: "mine"})
		require.NoError(w.t, err)
		w.settle()
		l := w.listen(ann, after)
		require.Equal(w.t, next, l.added())
		require.Equal(w.t, own.ID, l.added())
		entry, err := w.feed.Entry(w.ctx, ann, own)
		require.NoError(w.t, err)
		w.listen(ann, &entry.Cursor).expectNothingBefore(bob)
	})
}

func TestRemovalsWhileAway(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		deleted, hidden := w.post(bob, schema.Public), w.post(bob, schema.Public)
		l.next()
		after := l.position()
		l.close()
		require.NoError(w.t, w.feed.DeletePost(w.ctx, bob, deleted))
		w.settle()
		_, err := w.feed.SetVisibility(w.ctx, bob, hidden, schema.Private)
		require.NoError(w.t, err)
		w.settle()
		l = w.listen(ann, after)
		first := l.next().(*feed.PostRemoved)
		l.close() // with only one of the two told
		l = w.listen(ann, &first.Position)
		rest := l.removed()
		if rest == first.PostID { // to be told again does no harm
			rest = l.removed()
		}
		require.ElementsMatch(w.t, []int64{deleted, hidden}, []int64{first.PostID, rest})

		w.post(bob, schema.Public)
		after = l.position()
		l.close()
		_, err = w.feed.Unfollow(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		w.settle()
		l = w.listen(ann, after)
		require.IsType(w.t, &feed.Invalidated{}, l.next(), "more than is told one by one")
		l.expectNothingBefore(ann)
	})
}

func TestLostInboxIsAnnounced(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.post(bob, schema.Public)
		after := l.position()
		l.close()
		require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(ann.ID)))
		missed := w.post(bob, schema.Public)
		w.settle()
		l = w.listen(ann, after)
		ev := l.next()
		require.IsType(w.t, &feed.Invalidated{}, ev)
		require.Equal(w.t, missed, l.added(), "what can be told is told")
		again := w.listen(ann, &ev.(*feed.Invalidated).Position)
		require.Equal(w.t, missed, again.added())
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
			posts = append(posts, w.post(bob, schema.Public))
		}
		w.settle()
		require.Eventually(w.t, func() bool { return w.hub.Stats().Lagged > 0 }, 30*time.Second, time.Millisecond)
		got := make([]int64, len(posts))
		for i := range got {
			got[i] = l.added()
		}
		require.ElementsMatch(w.t, posts, got)
		l.expectNothingBefore(bob)
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		_, err := w.feed.Listen(w.ctx, ann, feed.Listening{Heartbeat: time.Millisecond}, func() {})
		require.Equal(w.t, feed.BadInput, feed.CodeOf(err))

		l := w.listenFor(ann, feed.Listening{Heartbeat: time.Second})
		ev := l.next()
		require.IsType(w.t, &feed.Heartbeat{}, ev)
		l.close()
		missed := w.post(bob, schema.Public)
		w.settle()
		l = w.listenFor(ann, feed.Listening{After: &ev.(*feed.Heartbeat).Position, Heartbeat: time.Hour})
		after := l.position()
		require.NotZero(w.t, missed)

		// Another device reads: this one is told at once.
		unread, err := w.feed.MarkRead(w.ctx, ann, *after)
		require.NoError(w.t, err)
		require.Zero(w.t, unread)
		require.IsType(w.t, &feed.Heartbeat{}, l.next())
		_, err = w.feed.MarkRead(w.ctx, ann, *after)
		require.NoError(w.t, err)
		l.expectNothingBefore(bob)
	})
}

func TestStreamThatCannotGoOnSaysSo(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.settle()
		require.NoError(w.t, w.s.SQL.Close())
		w.tell(ann, bob.ID)
		l.ends()
		require.Error(w.t, l.stream.Err())
	})
}

// A post is read and checked once for all whom a message is for.
func TestOneMessageCostsAConstantNumberOfQueries(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob := w.user("bob")
		followers := w.users(40)
		var listeners []listener
		ids := []int64{bob.ID}
		for i, v := range followers {
			if i%2 == 0 { // the others are told by mistake
				require.NoError(w.t, w.s.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(bob.ID).Exec(w.ctx))
				listeners = append(listeners, w.listen(v, nil))
			}
			ids = append(ids, v.ID)
		}
		stranger, own := w.listen(followers[1], nil), w.listen(bob, nil)
		id := w.history(bob, 1)[0]
		count := storagetest.CountQueries(w.s)
		tell := func(id int64) {
			reached, err := w.pub.Publish(w.ctx, live.Event{Kind: live.Added, Post: id}, ids)
			require.NoError(w.t, err)
			require.Equal(w.t, len(listeners)+2, reached)
		}
		tell(id)
		for _, l := range append(listeners, own) {
			require.Equal(w.t, id, l.added())
		}
		require.LessOrEqual(w.t, count(), 9, "three, as often as time runs out")

		// Whom it is hidden from meanwhile does not get it.
		_, err := w.feed.Block(w.ctx, bob, followers[0].ID)
		require.NoError(w.t, err)
		id = w.history(bob, 1)[0]
		tell(id)
		for _, l := range append(listeners[1:], own) {
			require.Equal(w.t, id, l.added())
		}
		for _, l := range []listener{listeners[0], stranger} {
			mine := w.history(l.viewer, 1)[0]
			w.tell(l.viewer, mine)
			require.Equal(w.t, mine, l.added(), "nothing else came")
		}
	})
}

// A first attempt that changed the inbox and told nobody is made up for.
func TestChangedInboxIsToldAtLast(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.history(bob, 1)[0]
		_, err := w.tl.Deliver(w.ctx, id, []int64{ann.ID})
		require.NoError(w.t, err)
		w.tell(ann, id)
		require.Equal(w.t, id, l.added())
		_, err = w.s.DB.Follow.Delete().Exec(w.ctx)
		require.NoError(w.t, err)
		changed, err := w.feed.SyncInbox(w.ctx, ann.ID, bob.ID)
		require.NoError(w.t, err)
		require.True(w.t, changed)
		require.NoError(w.t, w.feed.SyncInboxAndNotify(w.ctx, ann.ID, bob.ID))
		require.Equal(w.t, id, l.removed())
	})
}

// The muted must not find out, not even when nobody can tell what they have read.
func TestMuteIsNotToldToTheMuted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.befriend(ann, bob)
		w.settle()
		for _, change := range []func(context.Context, feed.Viewer, int64) (*ent.User, error){w.feed.Mute, w.feed.Unmute} {
			w.ready(ann)
			w.ready(bob)
			muting, muted := w.listen(ann, nil), w.listen(bob, nil)
			for _, v := range []feed.Viewer{ann, bob} {
				require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(v.ID)))
			}
			_, err := change(w.ctx, ann, bob.ID)
			require.NoError(w.t, err)
			w.settle()
			require.IsType(w.t, &feed.Invalidated{}, muting.next())
			muted.expectNothingBefore(bob)
			w.settle()
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
		id := w.history(bob, 1)[0]
		set := func(v schema.Visibility) {
			require.NoError(w.t, w.s.DB.Post.UpdateOneID(id).SetVisibility(v).Exec(w.ctx))
		}
		tell := func(kind live.Kind) {
			_, err := w.pub.Publish(w.ctx, live.Event{Kind: kind, Post: id, Author: bob.ID}, []int64{ann.ID})
			require.NoError(w.t, err)
		}
		tell(live.Added)
		require.Equal(w.t, id, l.added())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w.t, id, l.removed())
		set(schema.Public)
		tell(live.Invalidated)
		require.IsType(w.t, &feed.Invalidated{}, l.next())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w.t, id, l.removed(), "the client has read it")
		set(schema.Public)
		tell(live.Added)
		after := l.position()
		l.close()
		set(schema.Private)
		require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(ann.ID)))
		l = w.listen(ann, after)
		require.IsType(w.t, &feed.Invalidated{}, l.next())
		set(schema.Public)
		tell(live.Added)
		require.Equal(w.t, id, l.added(), "the client has not found it")
	})
}

// A post that was hidden and is shown again before a worker knew of either: who
// read in between has to get it again.
func TestHiddenAndShownAgainIsTold(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.followed()
		id := w.history(bob, 1)[0]
		w.ready(ann)
		after := w.top(ann)
		l := w.listen(ann, nil)
		for _, v := range []schema.Visibility{schema.Private, schema.Followers} {
			_, err := w.feed.SetVisibility(w.ctx, bob, id, v)
			require.NoError(w.t, err)
		}
		w.work()
		require.Equal(w.t, id, l.removed())
		require.Equal(w.t, id, l.added())
		w.settle()
		require.Equal(w.t, []int64{id}, w.timeline(ann, 9))
		away := w.listen(ann, after)
		require.Equal(w.t, id, away.removed())
		require.Equal(w.t, id, away.added())
		_, err := w.feed.SetVisibility(w.ctx, bob, id, schema.Public)
		require.NoError(w.t, err)
		w.settle()
		l.expectNothingBefore(bob)
	})
}

// A client was told of a post before its fan-out came, which is later than any that
// a cursor waits for: it is not told twice.
func TestReadBeforeALateFanout(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		w := newWorld(t, s, func(c *feed.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.post(bob, schema.Public) // nobody does its job
		w.tell(ann, id)
		after := l.position()
		l.close()
		ahead.Store(int64(150 * time.Second))
		l = w.listenFor(ann, feed.Listening{After: after, Heartbeat: time.Second})
		ev := l.next()
		require.IsType(w.t, &feed.Heartbeat{}, ev)
		l.close()
		l = w.listen(ann, &ev.(*feed.Heartbeat).Position)
		w.deliverLate(ann, id)
		other := w.history(bob, 1)[0]
		w.tell(ann, other)
		require.Equal(w.t, other, l.added(), "nothing twice")
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
		w.ready(ann)
		l := w.listen(ann, nil)
		_, err := w.feed.SetVisibility(w.ctx, bob, id, schema.Followers)
		require.NoError(w.t, err)
		var hook failsOnce
		hook.set.Store(true)
		w.s.Redis.AddHook(&hook)
		w.work()
		w.settle()
		require.False(w.t, hook.set.Load())
		l.expectNothingBefore(bob)
	})
}

// A cursor that tells a place and no more: what its client then reads again may
// have been on its way, and is not told when it arrives.
func TestResumeAfterAPlaceOnly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		ids := []int64{w.postAged(bob, 100*time.Second), w.postAged(bob, 95*time.Second)}
		var after *string
		for after == nil || !strings.HasPrefix(*after, "AQ") { // its version: the inbox may be built by then
			require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Inbox(ann.ID)))
			after = w.top(ann)
		}
		l := w.listen(ann, after)
		require.IsType(w.t, &feed.Invalidated{}, l.next())
		w.ready(ann)
		for _, id := range ids {
			require.NoError(w.t, w.tl.DeliverLate(w.ctx, timeline.Arrival{Post: id, Again: true}, []int64{ann.ID}))
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
		storagetest.Wipe(w.t, w.s)
		require.NoError(w.t, w.feed.BuildInbox(w.ctx, ann.ID))
		id := w.history(bob, 1)[0]
		pushed, err := w.tl.Deliver(w.ctx, id, []int64{ann.ID})
		require.NoError(w.t, err)
		require.Empty(w.t, pushed)
		_, covered, err := w.tl.Page(w.ctx, timeline.Inbox(ann.ID), timeline.Range{})
		require.NoError(w.t, err)
		require.Equal(w.t, timeline.Missing, covered.State)
		w.ready(ann)
		require.Equal(w.t, []int64{id}, w.timeline(ann, 9))
	})
}
