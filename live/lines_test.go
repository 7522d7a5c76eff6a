package live_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

// ofEach is the number of subscriptions of each of two users. Together they reach tellTogether.
const ofEach = 150

// crowd opens many subscriptions of the users 1 and 2. The channel receives the post of each event
// that the last subscription takes.
func crowd(t *testing.T, h *live.Hub) (told chan int64) {
	told = make(chan int64, 100)
	for i := range 2 * ofEach {
		s := subscribe(t, h, int64(i%2+1))
		s.SetTell(func() <-chan struct{} {
			ev, _ := s.Take()
			if i == 2*ofEach-1 {
				told <- ev.Post
			}
			return nil
		})
	}
	return told
}

// gates delay the prepare function for the events of some posts.
type gates map[int64]chan struct{}

func (g gates) prepare(reached chan<- int64) func(context.Context, live.Event) {
	return func(ctx context.Context, ev live.Event) {
		gate := g[ev.Post]
		if gate == nil {
			return
		}
		select {
		case reached <- ev.Post:
		default:
		}
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
}

// While many subscriptions are notified of a post, the author's next events wait in their order,
// and no mark that arrived after them becomes covered. Events of other authors, and events without
// an author, do not wait.
func TestEventsOfAnAuthorWaitInLine(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		h.SetMaxQueueWait(patience)
		gate, reached := gates{7: make(chan struct{})}, make(chan int64, 1)
		h.Prepare(gate.prepare(reached))
		told := crowd(t, h)
		one, other := subscribe(t, h, 1), subscribe(t, h, 3)
		publish := func(ev live.Event, users ...int64) {
			_, err := live.NewPublisher(rdb, sharded).Publish(t.Context(), ev, users)
			require.NoError(t, err)
		}

		publish(live.Event{Kind: live.Added, Author: 5, Post: 7}, 1, 2)
		require.EqualValues(t, 7, <-reached)
		publish(live.Event{Kind: live.Removed, Author: 5, Post: 8}, 1, 2)
		publish(live.Event{Kind: live.Invalidated, Author: 5}, 3)
		toHub(t, rdb, sharded)("\x01\x00\x64") // a probe with the mark 100
		publish(live.Event{Kind: live.Added, Author: 6, Post: 9}, 3)
		publish(live.Event{Kind: live.SessionEnded, Session: 10}, 3)
		require.EqualValues(t, 9, next(t, other).Post, "another author's")
		require.EqualValues(t, 10, next(t, other).Session, "no author's")
		require.EqualValues(t, 7, next(t, one).Post, "offered, though not told")
		require.Zero(t, one.Waiting()+other.Waiting(), "the author's next")
		require.Zero(t, other.Covered(), "an event waits in line")

		close(gate[7])
		require.EqualValues(t, 7, <-told)
		require.EqualValues(t, 8, <-told)
		require.EqualValues(t, 8, next(t, one).Post)
		require.Equal(t, live.Invalidated, next(t, other).Kind)
		require.Eventually(t, func() bool { return other.Covered() == 100 }, patience, time.Millisecond)
	})
}

// If more events wait than a subscription's buffer holds, the oldest ones are offered without
// waiting.
func TestLinesMoveOn(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 3})
		h.SetMaxQueueWait(patience)
		shut := make(chan struct{})
		gate, reached := gates{}, make(chan int64, 10)
		for post := range int64(7) {
			gate[post+1] = shut
		}
		first := make(chan struct{})
		gate[1] = first
		h.Prepare(gate.prepare(reached))
		told := crowd(t, h)
		one, other := subscribe(t, h, 1), subscribe(t, h, 3)
		publish := live.NewPublisher(rdb, sharded)
		for post := range int64(6) {
			_, err := publish.Publish(t.Context(), live.Event{Kind: live.Added, Author: 5, Post: post + 1}, []int64{1, 2})
			require.NoError(t, err)
		}
		_, err := publish.Publish(t.Context(), live.Event{Kind: live.SessionEnded, Session: 1}, []int64{3})
		require.NoError(t, err)
		require.Equal(t, live.SessionEnded, next(t, other).Kind, "all before it have come")
		require.EqualValues(t, 1, <-reached)
		require.EqualValues(t, 1, next(t, one).Post)
		close(first)
		require.EqualValues(t, 1, <-told)
		// Five wait. The first two have three or more behind them, so they are offered at once; so is the third,
		// but the fourth waits for it.
		require.Eventually(t, func() bool { return one.Waiting() == 3 }, patience, time.Millisecond)
		for post := range int64(3) {
			require.EqualValues(t, post+2, next(t, one).Post)
		}
		require.Zero(t, one.Waiting())
		close(shut)
		for post := range int64(2) {
			require.EqualValues(t, post+5, next(t, one).Post)
		}
	})
}

// A waiting event is still offered if the connection breaks, and if the notification of the event
// before it takes longer than the limit.
func TestWhatWaitsInLineIsNotDropped(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		for _, stands := range []time.Duration{patience, time.Millisecond} {
			mine, network := storagetest.Through(t, rdb)
			h, stop := run(t, mine, live.HubConfig{Sharded: sharded})
			h.SetMaxQueueWait(stands)
			gate, reached := gates{7: make(chan struct{})}, make(chan int64, 1)
			h.Prepare(gate.prepare(reached))
			crowd(t, h)
			one, other := subscribe(t, h, 1), subscribe(t, h, 3)
			publisher := live.NewPublisher(rdb, sharded)
			publish := func(ev live.Event, users ...int64) {
				_, err := publisher.Publish(t.Context(), ev, users)
				require.NoError(t, err)
			}
			publish(live.Event{Kind: live.Added, Author: 5, Post: 7}, 1, 2)
			require.EqualValues(t, 7, <-reached)
			publish(live.Event{Kind: live.Added, Author: 5, Post: 8}, 1, 2)
			publish(live.Event{Kind: live.SessionEnded, Session: 1}, 3)
			require.EqualValues(t, 1, after(t, other).Session, "all before it have come")
			require.EqualValues(t, 7, next(t, one).Post)
			if stands == patience {
				network.Cut()
			}
			require.Eventually(t, func() bool { // offered without a notification
				ev, _ := one.Take()
				return ev.Post == 8
			}, patience, time.Millisecond)
			stop()
		}
	})
}
