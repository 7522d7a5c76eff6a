package live_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(m, func() error { return goleak.Find() })
}

const patience = 30 * time.Second

// quick configures a hub that soon notices lost presence and a silent connection.
func quick(sharded bool) live.HubConfig {
	return live.HubConfig{Sharded: sharded, Heartbeat: 100 * time.Millisecond, Silence: 600 * time.Millisecond}
}

// run starts a hub and waits until it is ready. stop stops it and waits until Run has returned.
func run(t testing.TB, rdb redisclient.Client, cfg live.HubConfig) (h *live.Hub, stop func()) {
	h = live.NewHub(rdb, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return h.Ready(t.Context()) == nil }, patience, time.Millisecond)
	return h, stop
}

// reader is a subscription with a method that waits for the next event.
type reader struct {
	*live.Subscription
	news chan struct{}
}

func subscribe(t testing.TB, h *live.Hub, user int64) reader {
	r, err := read(t.Context(), h, user)
	require.NoError(t, err)
	return r
}

func read(ctx context.Context, h *live.Hub, user int64) (r reader, err error) {
	r.news = make(chan struct{}, 1)
	r.Subscription, err = h.Subscribe(ctx, user, func() {
		select {
		case r.news <- struct{}{}:
		default:
		}
	})
	return r, err
}

// take waits for the next event. ok is false when the subscription has ended.
func (r reader) take(t testing.TB) (ev live.Event, ok bool) {
	timeout := time.After(patience)
	for {
		ended := r.Ended()
		if ev, ok = r.Take(); ok || ended {
			return ev, ok
		}
		select {
		case <-r.news:
		case <-timeout:
			require.FailNow(t, "no event")
		}
	}
}

func publish(t testing.TB, p *live.Publisher, post int64, users ...int64) (reached int) {
	reached, err := p.Publish(t.Context(), live.Event{Kind: live.Added, Post: post}, users)
	require.NoError(t, err)
	return reached
}

// next waits for the next event. It fails the test if the subscription has ended.
func next(t testing.TB, r reader) live.Event {
	ev, ok := r.take(t)
	require.True(t, ok, "subscription ended: %v", r.Err())
	ev.Batch = nil // TestBatchOfAllRecipients tests it
	return ev
}

// after waits for the next event that is not a Resync.
func after(t testing.TB, s reader) live.Event {
	for {
		if ev := next(t, s); ev.Kind != live.Resync {
			return ev
		}
	}
}

func TestDelivery(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		p := live.NewPublisher(rdb, sharded)
		assert.Zero(t, publish(t, p, 1, 10, 20), "no hub at all")

		a, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 64})
		b, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 64})
		assert.Zero(t, publish(t, p, 1, 10, 20), "hubs without subscribers")
		assert.Zero(t, publish(t, p, 1), "no recipients")

		tenA, tenB := subscribe(t, a, 10), subscribe(t, b, 10)
		tenAgain := subscribe(t, a, 10)
		twenty := subscribe(t, a, 20)
		assert.Equal(t, 3, a.Subscribers())

		ev := live.Event{Kind: live.Invalidated, Post: 1<<53 - 1, Author: 2, Session: 3, Reason: "gone — for good"}
		reached, err := p.Publish(t.Context(), ev, []int64{30, 10, 1 << 52, 10})
		require.NoError(t, err)
		assert.Equal(t, 2, reached, "one user in two processes")
		for _, s := range []reader{tenA, tenB, tenAgain} {
			assert.Equal(t, ev, next(t, s))
		}

		// Twenty receives only its own events, in order.
		for post := range int64(50) {
			assert.Equal(t, 1, publish(t, p, post, 20))
		}
		for post := range int64(50) {
			assert.Equal(t, live.Event{Kind: live.Added, Post: post}, next(t, twenty))
		}
		for _, s := range []reader{tenA, tenB, tenAgain} {
			assert.Zero(t, s.Waiting(), "each event once")
		}
		require.Eventually(t, func() bool {
			return a.Stats() == live.Stats{Received: 51, Delivered: 52, Connects: 1}
		}, patience, time.Millisecond)
	})
}

func TestPublishRefuses(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		p := live.NewPublisher(rdb, sharded)
		for _, ev := range []live.Event{
			{}, {Kind: live.Resync}, {Kind: live.ConversationChanged + 1},
			{Kind: live.Added, Post: -1}, {Kind: live.Added, Author: -1}, {Kind: live.SessionEnded, Session: -1},
			{Kind: live.Invalidated, Reason: fmt.Sprintf("%257d", 1)},
		} {
			_, err := p.Publish(t.Context(), ev, []int64{1})
			assert.Error(t, err, "%+v", ev)
		}
		for _, users := range [][]int64{{0}, {3, -1}} {
			_, err := p.Publish(t.Context(), live.Event{Kind: live.Added}, users)
			assert.Error(t, err, "%v", users)
		}
		_, err := read(t.Context(), live.NewHub(rdb, live.HubConfig{}), 0)
		assert.Error(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = p.Publish(ctx, live.Event{Kind: live.Added}, []int64{1})
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// The recipients need several chunks of presence, look-ups and messages.
func TestManyRecipients(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		const held, others = 3500, 4000
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 4})
		subs := subscribeAll(t, h, held)
		users := make([]int64, 0, held+others)
		for user := int64(held + others); user > 0; user-- {
			users = append(users, user)
		}
		assert.Equal(t, held, publish(t, live.NewPublisher(rdb, sharded), 5, users...))
		for _, s := range subs {
			assert.EqualValues(t, 5, next(t, s).Post)
			assert.Zero(t, s.Waiting())
		}
	})
}

// subscribeAll subscribes the users 1 to n concurrently.
func subscribeAll(t testing.TB, h *live.Hub, n int) []reader {
	subs := make([]reader, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range subs {
		all.Go(func() { subs[i], errs[i] = read(t.Context(), h, int64(i+1)) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return subs
}

func TestLaggingSubscriberIsClosedAlone(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 3})
		p := live.NewPublisher(rdb, sharded)
		slow, sameUser, other := subscribe(t, h, 1), subscribe(t, h, 1), subscribe(t, h, 2)
		for post := range int64(5) {
			publish(t, p, post, 1, 2)
			assert.Equal(t, post, next(t, sameUser).Post)
			assert.Equal(t, post, next(t, other).Post)
		}
		var got []int64
		for ev, ok := slow.take(t); ok; ev, ok = slow.take(t) {
			got = append(got, ev.Post)
		}
		assert.Equal(t, []int64{0, 1, 2}, got, "what fitted can still be read")
		assert.ErrorIs(t, slow.Err(), live.ErrLagged)
		slow.Close()
		assert.ErrorIs(t, slow.Err(), live.ErrLagged, "the reason stays")
		assert.Equal(t, 2, h.Subscribers())
		assert.EqualValues(t, 1, h.Stats().Lagged)
		assert.NoError(t, other.Err())
	})
}

func TestPresenceFollowsSubscriptions(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		p := live.NewPublisher(rdb, sharded)
		first, second := subscribe(t, h, 1), subscribe(t, h, 1)
		first.Close()
		first.Close()
		_, open := first.take(t)
		assert.False(t, open)
		assert.NoError(t, first.Err())
		assert.Equal(t, 1, publish(t, p, 1, 1), "one is still there")
		assert.EqualValues(t, 1, next(t, second).Post)

		second.Close()
		assert.Zero(t, h.Subscribers())
		require.Eventually(t, func() bool { return publish(t, p, 2, 1) == 0 }, patience, time.Millisecond)

		again := subscribe(t, h, 1)
		assert.Equal(t, 1, publish(t, p, 3, 1))
		assert.EqualValues(t, 3, next(t, again).Post)
	})
}

// Every subscription receives the events that are published after Subscribe returned, while
// other subscriptions of the same user begin and end.
func TestConcurrentSubscribePublishClose(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		const workers, rounds, users = 8, 40, 3
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Buffer: 2 * workers * rounds})
		p := live.NewPublisher(rdb, sharded)
		var all sync.WaitGroup
		for w := range int64(workers) {
			all.Go(func() {
				for round := range int64(rounds) {
					s, err := read(t.Context(), h, 1+w%users)
					if !assert.NoError(t, err) {
						return
					}
					post := 1 + w*rounds + round
					reached, err := p.Publish(t.Context(), live.Event{Kind: live.Added, Post: post}, []int64{1 + w%users})
					assert.NoError(t, err)
					assert.Equal(t, 1, reached)
					for ev, ok := s.take(t); ok && ev.Post != post; ev, ok = s.take(t) {
					}
					assert.NoError(t, s.Err())
					s.Close()
				}
			})
		}
		all.Wait()
		assert.Zero(t, h.Subscribers())
		assert.EqualValues(t, 1, h.Stats().Connects)
		require.Eventually(t, func() bool { return publish(t, p, 1, 1, 2, 3) == 0 }, patience, time.Millisecond)
	})
}

// Until a hub is connected for the first time, subscriptions and Ready wait for it.
func TestTheFirstConnectionIsAwaited(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h := live.NewHub(rdb, live.HubConfig{Sharded: sharded})
		gaveUp, giveUp := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() {
			_, err := read(gaveUp, h, 1)
			waiting <- err
		}()
		require.Eventually(t, func() bool { return h.Subscribers() == 1 }, patience, time.Millisecond)
		giveUp()
		assert.ErrorIs(t, <-waiting, context.Canceled)
		assert.Zero(t, h.Subscribers())
		assert.Error(t, h.Ready(gaveUp))

		ready := make(chan error, 1)
		go func() { ready <- h.Ready(t.Context()) }()
		got := make(chan reader, 1)
		go func() {
			s, err := read(t.Context(), h, 1)
			assert.NoError(t, err)
			got <- s
		}()
		require.Eventually(t, func() bool { return h.Subscribers() == 1 }, patience, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		s := <-got
		assert.NoError(t, <-ready)
		assert.Equal(t, 1, publish(t, live.NewPublisher(rdb, sharded), 9, 1))
		assert.Equal(t, live.Event{Kind: live.Added, Post: 9}, next(t, s), "and no Resync before it")
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestStop(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, stop := run(t, rdb, live.HubConfig{Sharded: sharded})
		subs := []reader{subscribe(t, h, 1), subscribe(t, h, 1), subscribe(t, h, 2)}
		assert.Error(t, h.Run(t.Context()), "it runs already")
		stop()
		for _, s := range subs {
			_, open := s.take(t)
			assert.False(t, open)
			assert.ErrorIs(t, s.Err(), live.ErrClosed)
		}
		assert.Zero(t, h.Subscribers())
		assert.Error(t, h.Ready(t.Context()))
		_, err := read(t.Context(), h, 1)
		assert.ErrorIs(t, err, live.ErrClosed)
		assert.Zero(t, publish(t, live.NewPublisher(rdb, sharded), 1, 1, 2))
		assert.Empty(t, keys(t, rdb), "nothing stays behind")
	})
}

// keys returns all keys on all masters.
func keys(t testing.TB, rdb redisclient.Client) []string {
	var mu sync.Mutex
	var all []string
	collect := func(ctx context.Context, node *redis.Client) error {
		found, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	}
	if c, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, c.ForEachMaster(t.Context(), collect))
	} else {
		require.NoError(t, collect(t.Context(), rdb.(*redis.Client)))
	}
	return all
}

// All recipients of a message have the same Batch, and so share what is read for it.
func TestBatchOfAllRecipients(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		a, b := subscribe(t, h, 1), subscribe(t, h, 2)
		publish(t, live.NewPublisher(rdb, sharded), 5, 3, 2, 1)
		first, _ := a.take(t)
		second, _ := b.take(t)
		require.Same(t, first.Batch, second.Batch)
		require.Equal(t, []int64{1, 2}, first.Batch.Users)
	})
}
