package stream_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/job"
	"tideline/feed/stream"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
)

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

		// The cursors of a page name the posts of the page.
		page := w.listen(ann, w.Top(ann))
		page.expectNothingBefore(bob)
	})
}

// An inbox may contain hidden posts. No cursor names them, so each is sent when it is shown.
func TestCursorNamesNothingHidden(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		hidden, held, top := w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		for _, id := range []int64{hidden, held, top} {
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
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

// If fan-outs overtake each other, a post that arrives below a newer one is still sent.
func TestOvertakenArrival(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		slow, quick := w.History(bob, 1)[0], w.History(bob, 1)[0]
		deliver := func(id int64) {
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
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

// A client receives a post before its fan-out, which comes later than the arrival grace of any cursor.
// The client does not receive the post twice.
func TestReadBeforeALateFanout(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		w := newWorld(t, s, feedtest.Options{
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.Post(bob, schema.Public) // no worker runs its job
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

// An attempt that lost its claim causes the fan-out to run again, minutes after its successor notified
// all readers. Nobody receives the post again.
func TestFanOutDoneOnceMoreTellsNothingTwice(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.followed()
		id := w.postMinutesAgo(bob)
		w.AwaitInbox(ann)
		after := w.Top(ann)
		again, err := json.Marshal(job.Post{Post: id, Author: bob.ID})
		require.NoError(w, err)
		require.NoError(w, w.Stores.DB.Job.Create().SetKind(job.PostCreated).SetPool(string(queue.Small)).SetPayload(again).
			SetDueAt(time.Now()).SetClaim(1).SetRestart(true).Exec(w.Ctx))
		w.Work()
		w.Drain()
		w.listen(ann, after).expectNothingBefore(bob)
	})
}
