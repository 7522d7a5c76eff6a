package live

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/internal/clock"
	"tideline/internal/redisclient"
	"tideline/internal/trace"
)

const (
	// The pause between two attempts to connect doubles each time, with jitter, so that
	// not all processes connect to a restarted Redis at once.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second

	// goodbye is how long a stopping hub waits for Redis, beyond the time-outs
	// of the Redis client.
	goodbye = 2 * time.Second
)

// HubConfig configures a hub. Zero values and negative numbers mean the defaults.
type HubConfig struct {
	// Sharded uses sharded pub/sub. Publishers must be configured alike.
	Sharded bool
	// Buffer is how many events a subscription holds for its reader. A subscription
	// that needs more ends with ErrLagged. Defaults to 32. Each waiting event takes
	// 56 bytes.
	Buffer int
	// Tracer continues the traces that events carry. Optional.
	Tracer *trace.Tracer
	// Logger logs lost connections and failures of presence. Defaults to discarding.
	Logger *slog.Logger
	// Heartbeat is how often presence is refreshed and checked. Publishers consider a
	// process dead that has missed four heartbeats. Defaults to 5 s.
	Heartbeat time.Duration
	// Silence is how long the connection may deliver nothing, not even a probe, before
	// the hub replaces it. The hub sends a probe every third of Silence. Defaults to
	// 6 s. If commands on other connections hang as well, the hub notices the silence
	// within 10 s.
	Silence time.Duration
	// Mark returns a number that never falls, such as a time. The hub calls it every
	// Heartbeat; [Subscription.Covered] returns one of the results. Optional.
	Mark func(ctx context.Context) int64
}

// Hub receives events for the subscriptions of one process. It is safe for
// concurrent use.
type Hub struct {
	cfg      HubConfig
	rdb      redisclient.Client
	log      *slog.Logger
	presence presence
	born     time.Time

	running atomic.Bool
	first   chan struct{} // closed when the hub has come online for the first time
	online  atomic.Bool   // connected, and presence is written
	heard   atomic.Int64  // when the channel last delivered anything, as a duration since born
	gap     atomic.Bool   // a message was lost: Resync at the next heartbeat
	marked  atomic.Int64  // the highest mark taken
	covered atomic.Int64  // see Subscription.Covered
	wake    chan struct{}
	prepare atomic.Pointer[func(context.Context, Event)]
	telling sync.WaitGroup // the goroutines of tell and of authorQueues
	queues  authorQueues

	received, delivered, strays, lagged, malformed, resyncs, connects atomic.Uint64

	// Guarded by mu.
	mu      sync.RWMutex
	subs    map[int64][]*Subscription
	touched map[int64]struct{} // users whose presence may have to change
	stopped bool

	// Owned by the goroutine that writes presence.
	held  map[int64]struct{} // users that are registered in Redis for this process
	dirty bool               // a write failed, so Redis may differ from held
	whole int64              // mark taken before the last heartbeat that found presence complete or restored it
}

// NewHub returns a hub with a random name. It does nothing until Run.
func NewHub(rdb redisclient.Client, cfg HubConfig) *Hub {
	cfg.Buffer = cmp.Or(max(cfg.Buffer, 0), 32)
	cfg.Heartbeat = cmp.Or(max(cfg.Heartbeat, 0), 5*time.Second)
	cfg.Silence = cmp.Or(max(cfg.Silence, 0), 6*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	name := rand.Text()
	h := &Hub{
		cfg:      cfg,
		rdb:      rdb,
		log:      cfg.Logger.With("process", name),
		presence: presence{rdb: rdb, proc: name, ttl: 4 * cfg.Heartbeat},
		born:     time.Now(),
		first:    make(chan struct{}),
		wake:     make(chan struct{}, 1),
		subs:     make(map[int64][]*Subscription),
		touched:  make(map[int64]struct{}),
		held:     make(map[int64]struct{}),
	}
	h.queues = authorQueues{most: cfg.Buffer, maxWait: maxQueueWait, running: &h.telling, busy: make(map[int64][]offer)}
	return h
}

// Run connects, and reconnects, until ctx is done; it returns ctx.Err(). When it
// returns, every subscription has ended with [ErrClosed], and the process is
// removed from Redis, or will be when its presence expires. A hub runs once.
//
// Cost: one connection, and for any number of users two round trips per Heartbeat and one per third of Silence.
// One command per 1,000 users that are added or removed.
func (h *Hub) Run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errors.New("live: hub has been run before")
	}
	defer h.telling.Wait()
	defer h.stop(ctx)
	if h.cfg.Mark != nil {
		var marking sync.WaitGroup
		marking.Go(func() { h.takeMarks(ctx) })
		defer marking.Wait()
	}
	retry := minRetry
	for {
		before := h.connects.Load()
		err := h.session(ctx)
		h.online.Store(false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if h.connects.Load() > before {
			retry = minRetry
		}
		h.log.Warn("live: lost the pub/sub connection", "error", err, "retry", retry)
		if err := clock.Sleep(ctx, retry/2+mathrand.N(retry)); err != nil {
			return err
		}
		retry = min(2*retry, maxRetry)
	}
}

// stop ends the subscriptions and removes the process from Redis.
func (h *Hub) stop(ctx context.Context) {
	h.mu.Lock()
	h.stopped = true
	for user := range h.subs {
		for len(h.subs[user]) > 0 {
			h.end(h.subs[user][0], ErrClosed)
		}
	}
	h.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := h.presence.remove(ctx); err != nil {
		h.log.Warn("live: presence is left to expire", "error", err)
	}
}

// session runs one connection until it breaks or falls silent, or ctx is done.
func (h *Hub) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub, err := h.subscribe(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	// A read does not heed ctx: closing the connection ends it.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()

	if err := h.confirm(ctx, sub); err != nil {
		return err
	}
	after := h.marked.Load() // up to here, a mark may have been taken before a loss
	registrar := make(chan error, 1)
	go func() {
		registrar <- h.keepPresence(ctx)
		cancel()
	}()
	received := h.receive(ctx, sub, after)
	cancel()
	if err := <-registrar; err != nil {
		return err // the cause; receive only reports that the connection was closed
	}
	return received
}

// pubsub is a connection that receives messages: a *redis.PubSub, which no method of a Hub mentions for the reason
// that redisclient.Client gives.
type pubsub interface {
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	Close() error
}

func (h *Hub) subscribe(ctx context.Context) (pubsub, error) {
	rdb, ok := h.rdb.(interface {
		Subscribe(ctx context.Context, channels ...string) *redis.PubSub
		SSubscribe(ctx context.Context, channels ...string) *redis.PubSub
	})
	if !ok {
		return nil, fmt.Errorf("live: a %T cannot subscribe", h.rdb)
	}
	var sub *redis.PubSub
	var err error
	name := channel(h.presence.proc)
	if h.cfg.Sharded {
		sub = rdb.SSubscribe(ctx)
		err = sub.SSubscribe(ctx, name)
	} else {
		sub = rdb.Subscribe(ctx)
		err = sub.Subscribe(ctx, name)
	}
	if err != nil {
		_ = sub.Close()
		return nil, fmt.Errorf("live: subscribe to own channel: %w", err)
	}
	return sub, nil
}

// confirm waits until Redis confirms the subscription.
func (h *Hub) confirm(ctx context.Context, sub pubsub) error {
	msg, err := sub.ReceiveTimeout(ctx, h.cfg.Silence)
	if err != nil {
		return fmt.Errorf("live: subscribe to own channel: %w", err)
	}
	if _, ok := msg.(*redis.Subscription); !ok {
		return fmt.Errorf("live: subscribe to own channel: unexpected answer %T", msg)
	}
	h.hear()
	return nil
}

// receive reads the connection and never waits for a subscriber. It returns when
// nothing arrived for as long as Silence.
//
// A probe arrives after every message that was published before it. It carries a mark
// that was taken before presence was last found complete. So when the probe arrives,
// every event that was published before the mark was taken has been offered, or waits
// in h.queues. The mark is covered once those have been offered. Marks up to after are
// ignored: they were taken before the last loss, and a probe that was sent before the
// Resync may carry them.
func (h *Hub) receive(ctx context.Context, sub pubsub, after int64) error {
	var users []int64 // reused
	for {
		msg, err := sub.ReceiveTimeout(ctx, h.cfg.Silence)
		if err != nil {
			return fmt.Errorf("live: receive: %w", err)
		}
		h.hear()
		switch msg := msg.(type) {
		case *redis.Message:
			if mark, ok := decodeProbe(msg.Payload); ok {
				if mark > after {
					h.queues.afterAll(func() { h.cover(mark) })
				}
				continue
			}
			var ev Event
			ev, users, err = decode(msg.Payload, users[:0])
			switch {
			case err != nil:
				h.malformed.Add(1)
				h.gap.Store(true)
				after = h.marked.Load()
			default:
				h.received.Add(1)
				recipients := slices.Clone(users)
				h.queues.join(ctx, ev.Author, func() <-chan struct{} { return h.deliver(ctx, ev, recipients) })
			}
		case *redis.Subscription:
			// A cluster unsubscribes the channel when it moves the slot to another node.
			return fmt.Errorf("live: receive: %s of own channel", msg.Kind)
		}
	}
}

// cover records that every event published before the mark was taken has been offered.
func (h *Hub) cover(mark int64) {
	for was := h.covered.Load(); mark > was && !h.covered.CompareAndSwap(was, mark); was = h.covered.Load() {
	}
}

// deliver puts ev into the buffers of the users' subscriptions and keeps the users slice. If
// the author's next event has to wait, deliver returns a channel that is closed when the
// subscriptions have been notified.
func (h *Hub) deliver(ctx context.Context, ev Event, users []int64) (told <-chan struct{}) {
	carried := ""
	if ev.carries() {
		ev.Reason, carried, _ = strings.Cut(ev.Reason, " ")
	}
	ctx, span := h.cfg.Tracer.Continue(ctx, carried, "receive", ev.Kind.String())
	defer span.End(nil)
	ev.Batch = &Batch{Users: users, place: trace.Here(ctx)}
	prepare := h.prepare.Load()
	together := prepare != nil && len(users) > 1 && (ev.Kind == Added || ev.Kind == Removed)
	var full, offered []*Subscription
	var sent, strays uint64
	h.mu.RLock()
	for _, user := range users {
		subs := h.subs[user]
		if len(subs) == 0 {
			strays++
		}
		for _, s := range subs {
			switch {
			case !s.offer(ev):
				full = append(full, s)
				continue
			case together:
				offered = append(offered, s)
			default:
				s.wake()
			}
			sent++
		}
	}
	h.mu.RUnlock()
	h.delivered.Add(sent)
	h.strays.Add(strays)
	h.drop(full)
	span.Int("tideline.subscriptions", int64(sent))
	if len(offered) == 0 {
		return nil
	}
	done := make(chan struct{})
	h.telling.Go(func() {
		defer close(done)
		h.tell(ctx, func() { (*prepare)(ctx, ev) }, offered)
	})
	if len(offered) < tellTogether {
		return nil
	}
	return done
}

// resync sends a Resync to every registered subscription. A subscription that Subscribe
// has not returned yet cannot have missed an event.
func (h *Hub) resync() {
	var told, full []*Subscription
	h.mu.RLock()
	for _, subs := range h.subs {
		for _, s := range subs {
			switch {
			case !s.registered:
			case s.offer(Event{Kind: Resync}):
				told = append(told, s)
			default:
				full = append(full, s)
			}
		}
	}
	h.mu.RUnlock()
	h.resyncs.Add(uint64(len(told)))
	h.drop(full)
	if len(told) <= wakeTogether {
		wakeAll(told)
		return
	}
	h.telling.Go(func() {
		for some := range slices.Chunk(told, wakeTogether) {
			wakeAll(some)
			<-time.After(wakePause)
		}
	})
}

// Goroutines run in the order in which they are woken. If a Resync woke all subscriptions at
// once, a request for a page would wait behind them. So resync wakes wakeTogether at a time:
// 20,000 in a third of a second. An event that arrives meanwhile wakes its subscriptions itself.
const (
	wakeTogether = 64
	wakePause    = time.Millisecond
)

func wakeAll(subs []*Subscription) {
	for _, s := range subs {
		s.wake()
	}
}

// drop ends subscriptions whose buffer was full.
func (h *Hub) drop(full []*Subscription) {
	if len(full) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range full {
		if !s.Ended() {
			h.lagged.Add(1)
			h.end(s, ErrLagged)
		}
	}
}

func (h *Hub) hear() { h.heard.Store(int64(time.Since(h.born))) }

// Ready returns an error unless the hub is connected, its users are registered,
// and its channel has delivered something within [HubConfig.Silence]. A hub that has
// never been connected is given until ctx ends; after that, Ready returns at once.
//
// Cost: none.
func (h *Hub) Ready(ctx context.Context) error {
	select {
	case <-h.first:
	case <-ctx.Done():
	}
	if !h.online.Load() {
		return errors.New("live: not connected to Redis pub/sub")
	}
	if silent := time.Since(h.born) - time.Duration(h.heard.Load()); silent > h.cfg.Silence {
		return fmt.Errorf("live: Redis pub/sub is silent for %v", silent.Round(time.Millisecond))
	}
	return nil
}

// Stats counts events since the hub was created.
type Stats struct {
	Received  uint64 // messages with events
	Delivered uint64 // events put into the buffer of a subscription
	Strays    uint64 // recipients that no longer had a subscription here
	Lagged    uint64 // subscriptions closed because their buffer was full
	Malformed uint64 // messages that could not be read
	Resyncs   uint64 // Resync events put into the buffer of a subscription
	Connects  uint64 // times the hub came online; 1 if the connection never broke
}

// Stats returns the counters. They are read one after the other, and may lag behind
// what a subscriber has already received.
func (h *Hub) Stats() Stats {
	return Stats{
		Received:  h.received.Load(),
		Delivered: h.delivered.Load(),
		Strays:    h.strays.Load(),
		Lagged:    h.lagged.Load(),
		Malformed: h.malformed.Load(),
		Resyncs:   h.resyncs.Load(),
		Connects:  h.connects.Load(),
	}
}
