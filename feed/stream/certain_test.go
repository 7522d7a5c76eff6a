package stream_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// clocked is the fixture with a clock that can jump.
type clocked struct {
	*world
	ahead *atomic.Int64
}

// eachClocked is eachIdle with a clock that can jump.
func eachClocked(t *testing.T, test func(w clocked)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		test(clocked{newWorld(t, s, feedtest.Options{
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		}), &ahead})
	})
}

// away is how long a process is cut off or stopped: longer than the arrival grace.
const away = 150 * time.Second

// arrives writes a post whose id lies ten seconds ahead of the clock, and delivers it in time.
func (w clocked) arrives(author, reader session.Viewer) int64 {
	w.Helper()
	id := w.PostAged(author, -10*time.Second)
	_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{reader.ID})
	require.NoError(w, err)
	w.tell(reader, id)
	return id
}

// The process is cut off from Redis for longer than the arrival grace while posts arrive. Its
// heartbeats do not advance past that time, and it sends the posts when it is connected again.
func TestNothingIsLostWhileCutOff(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		mine, net := storagetest.Through(w, w.Stores.Redis)
		hub := live.NewHub(mine, live.HubConfig{
			Sharded: w.Stores.Sharded, Mark: w.Home.Arrivals.ArrivedID, Heartbeat: 200 * time.Millisecond, Silence: time.Second,
		})
		w.Run(hub.Run)
		there := w.Streams
		cut, err := w.StreamsFrom(hub)
		require.NoError(w, err)
		ann, bob := w.pair()
		w.Streams = cut
		l := w.listenFor(ann, stream.Options{Heartbeat: time.Second})
		require.IsType(w, &stream.Heartbeat{}, l.next())

		net.Leave()
		require.Eventually(w, func() bool { return hub.Ready(w.Ctx) != nil }, 30*time.Second, time.Millisecond)
		var missed []int64
		for range 3 {
			missed = append(missed, w.arrives(bob, ann))
		}
		w.ahead.Store(int64(away))
		var vouched *string
		for range 2 {
			ev := l.next()
			require.IsType(w, &stream.Heartbeat{}, ev)
			vouched = &ev.(*stream.Heartbeat).Position
		}
		w.Streams = there
		elsewhere := w.listen(ann, vouched)
		for _, id := range missed {
			require.Equal(w, id, elsewhere.added(), "the client resumes elsewhere")
		}
		net.Return()
		for _, id := range missed {
			ev := l.next()
			for _, beat := ev.(*stream.Heartbeat); beat; _, beat = ev.(*stream.Heartbeat) {
				ev = l.next()
			}
			require.Equal(w, id, ev.(*stream.PostAdded).Edge.Node.ID, "the stream goes on")
		}
	})
}

// The process is stopped for longer than the arrival grace while an event waits in a stream that
// has sent everything else.
func TestNothingIsLostWhileStopped(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.tell(ann, w.History(bob, 1)[0])
		l.added()
		_, more := l.stream.Next(w.Ctx)
		require.False(w, more)
		id := w.arrives(bob, ann)
		require.Eventually(w, func() bool { return w.Hub.Stats().Delivered >= 2 }, 30*time.Second, time.Millisecond)
		w.ahead.Store(int64(away))
		require.Equal(w, id, l.added())
	})
}

// The client does not read for longer than the arrival grace, so its subscription lags behind.
func TestNothingIsLostWhileLagging(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		w.tell(ann, w.History(bob, 1)[0])
		l.added()
		_, more := l.stream.Next(w.Ctx)
		require.False(w, more)
		var posts, got []int64
		for range 40 { // more than a subscription's buffer holds
			posts = append(posts, w.arrives(bob, ann))
		}
		require.Eventually(w, func() bool { return w.Hub.Stats().Lagged > 0 }, 30*time.Second, time.Millisecond)
		w.ahead.Store(int64(away))
		for range posts {
			got = append(got, l.added())
		}
		require.ElementsMatch(w, posts, got)
	})
}

// stops is a Redis hook that calls a function once, after a pipeline.
type stops struct{ then atomic.Pointer[func()] }

func (*stops) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*stops) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *stops) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if then := h.then.Swap(nil); then != nil {
			(*then)()
		}
		return err
	}
}

// The process is stopped after it has read a page and before it makes the cursors of the entries.
func TestPageOfAStoppedProcessVouchesForItsRead(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		ann, bob := w.followed()
		w.PostAged(bob, -20*time.Second) // the page has this post; a post with a lower id arrives later
		w.AwaitInbox(ann)
		hook := &stops{}
		w.Stores.Redis.AddHook(hook)
		var id int64
		stop := func() {
			id = w.arrives(bob, ann)
			w.ahead.Store(int64(away))
		}
		hook.then.Store(&stop)
		page := w.Top(ann)
		require.NotZero(w, id)
		require.Equal(w, id, w.listen(ann, page).added())
	})
}

// The visibility of a post is widened when the post is almost late. The fan-out of the change stops
// before it pushes, and continues when the post is older than the arrival grace.
func TestLateWideningIsNotTakenForKnown(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		ann, bob := w.followed()
		w.History(bob, 1)
		id := w.PostAged(bob, 80*time.Second)
		require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetVisibility(schema.Private).Exec(w.Ctx))
		w.AwaitInbox(ann)
		_, err := w.Feed.SetVisibility(w.Ctx, bob, id, schema.Public) // no worker runs the job
		require.NoError(w, err)
		w.ahead.Store(int64(time.Minute))
		page := w.Top(ann)
		_, err = w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		require.Equal(w, id, w.listen(ann, page).added())
	})
}

// arrivesBeforePresence is a Redis hook that calls a function once, before the presence of a user is
// written.
type arrivesBeforePresence struct {
	user int64
	do   atomic.Pointer[func()]
}

func (*arrivesBeforePresence) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*arrivesBeforePresence) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *arrivesBeforePresence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			for _, arg := range cmd.Args() {
				if cmd.Name() == "sadd" && fmt.Sprint(arg) == fmt.Sprint(h.user) {
					if do := h.do.Swap(nil); do != nil {
						(*do)()
					}
				}
			}
		}
		return next(ctx, cmds)
	}
}

// A subscription without a cursor begins. A post arrives after the stream has read the timeline and
// before the hub is subscribed.
func TestWhatComesWhileAStreamBeginsIsTold(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		var id int64
		arrive := func() {
			id = w.History(bob, 1)[0]
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
			w.tell(ann, id)
		}
		hook := &arrivesBeforePresence{user: ann.ID}
		hook.do.Store(&arrive)
		w.Stores.Redis.AddHook(hook)
		l := w.listen(ann, nil)
		require.NotZero(w, id)
		require.Equal(w, id, l.added())
		l.expectQuiet("told once")
	})
}

// No worker runs for longer than the arrival grace. Heartbeats report that, and their CompleteUpTo
// stays before the waiting post. When the workers run again, the open stream receives the post, and
// so does a client that resumes after a heartbeat or a page of that time.
func TestNothingIsLostWhileWorkersStandStill(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(w clocked) {
		ann, bob := w.pair()
		l := w.listenFor(ann, stream.Options{Heartbeat: time.Second})
		beat := func() *stream.Heartbeat {
			w.Home.Arrivals.ArrivedID(w.Ctx) // looks for late fan-outs, as the hub does every five seconds
			var ev any
			for range 2 { // the first may date from before the call
				ev = l.next()
				require.IsType(w, &stream.Heartbeat{}, ev)
			}
			return ev.(*stream.Heartbeat)
		}
		require.Zero(w, beat().LateBy)
		id := w.Post(bob, schema.Public) // no worker runs its job
		w.ahead.Store(int64(34 * time.Second))
		require.InDelta(w, 34, beat().LateBy, 20, "seconds, on a busy machine")
		w.ahead.Store(int64(away))
		last := beat()
		require.GreaterOrEqual(w, last.LateBy, 150)
		require.True(w, last.CompleteUpTo.Before(ids.TimeOf(id)), "%v", last.CompleteUpTo)
		page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
		w.Work()
		w.Drain()
		told := false
		for !told {
			if ev, ok := l.next().(*stream.PostAdded); ok {
				require.Equal(w, id, ev.Edge.Node.ID)
				told = true
			}
		}
		w.ahead.Add(int64(10 * time.Second))
		require.Zero(w, beat().LateBy)
		for _, after := range []*string{&last.Position, &page.Position} {
			resumed := w.listen(ann, after)
			require.Equal(w, id, resumed.added())
			_, more := resumed.stream.Next(w.Ctx)
			require.False(w, more, "once")
		}
	})
}
