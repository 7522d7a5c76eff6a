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

	"tideline/internal/trace"
)

const (
	// Between two attempts to connect: doubled each time, with jitter, so that
	// a restarted Redis does not meet all processes at once.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second

	// goodbye bounds what a stopping hub waits for Redis, beyond the time-outs
	// of the client itself.
	goodbye = 2 * time.Second
)

// HubConfig configures a hub. Zero values mean the defaults; so do negative
// numbers.
type HubConfig struct {
	// Sharded uses sharded pub/sub, as the publishers must too.
	Sharded bool
	// Buffer is how many events a subscription holds for its reader before it
	// is given up as lagging. Defaults to 32, 56 bytes each while they wait.
	Buffer int
	// Tracer goes on with the journeys that events bring. Optional.
	Tracer *trace.Tracer
	// Logger is told of lost and restored connections. Defaults to none.
	Logger *slog.Logger
	// Heartbeat is how often presence is refreshed and checked. Publishers take a
	// process that has missed four for dead. Defaults to 5 s.
	Heartbeat time.Duration
	// Silence is how long nothing may come through the connection, probes
	// included, before it is given up. A probe is sent three times as often.
	// Defaults to 6 s. If commands on other connections hang as well, the silence is
	// noticed within 10 s.
	Silence time.Duration
	// Mark returns a number that never falls, such as a moment. The hub takes a mark
	// every Heartbeat, and [Subscription.Covered] returns one of them. Optional.
	Mark func(ctx context.Context) int64
}

// Hub holds the subscriptions of one process. It is safe for concurrent use.
type Hub struct {
	cfg      HubConfig
	rdb      redis.UniversalClient
	log      *slog.Logger
	presence presence
	born     time.Time

	running atomic.Bool
	online  atomic.Bool  // connected, and presence is written
	heard   atomic.Int64 // when the channel last said anything, since born
	gap     atomic.Bool  // a message was lost: Resync at the next heartbeat
	marked  atomic.Int64 // the highest mark taken
	covered atomic.Int64 // see Subscription.Covered
	wake    chan struct{}
	prepare atomic.Pointer[func(context.Context, Event)]
	telling sync.WaitGroup // the goroutines of tell and of lines
	lines   lines

	received, delivered, strays, lagged, malformed, resyncs, connects atomic.Uint64

	// Guarded by mu.
	mu      sync.RWMutex
	subs    map[int64][]*Subscription
	touched map[int64]struct{} // users whose presence may have to change
	stopped bool

	// Owned by the goroutine that writes presence.
	held  map[int64]struct{} // users that Redis knows we hold
	dirty bool               // a write failed: Redis may know otherwise
	whole int64              // mark taken before the last heartbeat that found or made presence whole
}

// NewHub returns a hub with a random name of its own. It does nothing until Run.
func NewHub(rdb redis.UniversalClient, cfg HubConfig) *Hub {
	cfg.Buffer = cmp.Or(max(cfg.Buffer, 0), 32)
	cfg.Heartbeat = cmp.Or(max(cfg.Heartbeat, 0), 5*time.Second)
	cfg.Silence = cmp.Or(max(cfg.Silence, 0), 6*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	name := rand.Text()
	h := &Hub{
		cfg:      cfg,
		rdb:      rdb,
		log:      cfg.Logger.With("process", name),
		presence: presence{rdb: rdb, proc: name, ttl: 4 * cfg.Heartbeat},
		born:     time.Now(),
		wake:     make(chan struct{}, 1),
		subs:     make(map[int64][]*Subscription),
		touched:  make(map[int64]struct{}),
		held:     make(map[int64]struct{}),
	}
	h.lines = lines{most: cfg.Buffer, stands: lineStands, running: &h.telling, busy: make(map[int64][]offer)}
	return h
}

// Run connects, and keeps connected, until ctx is done; it returns ctx.Err().
// Then every subscription has ended with [ErrClosed] and the process is gone
// from Redis, or will be when its presence expires. A hub runs once.
//
// Cost: one connection, and two round trips a heartbeat, whatever the number of
// users; one command per 1,000 users who come or go.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry/2 + mathrand.N(retry)):
		}
		retry = min(2*retry, maxRetry)
	}
}

// stop ends the subscriptions and says good-bye to Redis.
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

// session is the life of one connection. It returns when that is broken or
// silent or ctx is done.
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
	after := h.marked.Load() // what was lost before is covered by none of these
	registrar := make(chan error, 1)
	go func() {
		registrar <- h.keepPresence(ctx)
		cancel()
	}()
	received := h.receive(ctx, sub, after)
	cancel()
	if err := <-registrar; err != nil {
		return err // the cause; what receive says is only the closing
	}
	return received
}

func (h *Hub) subscribe(ctx context.Context) (sub *redis.PubSub, err error) {
	name := channel(h.presence.proc)
	if h.cfg.Sharded {
		sub = h.rdb.SSubscribe(ctx)
		err = sub.SSubscribe(ctx, name)
	} else {
		sub = h.rdb.Subscribe(ctx)
		err = sub.Subscribe(ctx, name)
	}
	if err != nil {
		_ = sub.Close()
		return nil, fmt.Errorf("live: subscribe to own channel: %w", err)
	}
	return sub, nil
}

// confirm waits until Redis has the subscription.
func (h *Hub) confirm(ctx context.Context, sub *redis.PubSub) error {
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

// receive drains the connection, whatever becomes of the subscribers: nothing
// here waits. It returns when nothing came in for as long as Silence.
//
// A probe comes back behind every message that was published before it. It carries a
// mark that was taken before presence was last found whole. So every event that was
// published before the mark was taken has been offered by then, or waits in line: the
// mark counts when it has been offered. Marks up to after do not count: they were taken
// before the last loss, so a probe may carry them that was sent before the Resync.
func (h *Hub) receive(ctx context.Context, sub *redis.PubSub, after int64) error {
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
					h.lines.afterAll(func() { h.cover(mark) })
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
				h.lines.join(ctx, ev.Author, func() <-chan struct{} { return h.deliver(ctx, ev, recipients) })
			}
		case *redis.Subscription:
			// A cluster that moves the slot elsewhere takes the channel away.
			return fmt.Errorf("live: receive: %s of own channel", msg.Kind)
		}
	}
}

// cover has readers know that everything before the mark has been offered.
func (h *Hub) cover(mark int64) {
	for was := h.covered.Load(); mark > was && !h.covered.CompareAndSwap(was, mark); was = h.covered.Load() {
	}
}

// deliver hands ev to the subscriptions of users, which become the event's. If the next
// event is to wait for this one, the channel is closed when they have been told.
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

// resync tells every registered subscription that it may have missed something.
// One that Subscribe has not yet returned cannot have.
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

// Goroutines that are woken run in the order in which they were. Whoever asks for a page
// would wait behind those of all subscriptions that a Resync is for: they are woken some at
// a time, 20,000 in a third of a second. An event that comes meanwhile wakes its own.
const (
	wakeTogether = 64
	wakePause    = time.Millisecond
)

func wakeAll(subs []*Subscription) {
	for _, s := range subs {
		s.wake()
	}
}

// drop ends subscriptions that missed an event.
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
// and its channel has spoken within [HubConfig.Silence]. It asks nobody and
// returns at once.
//
// Cost: none; it looks at what it has heard.
func (h *Hub) Ready(context.Context) error {
	if !h.online.Load() {
		return errors.New("live: not connected to Redis pub/sub")
	}
	if silent := time.Since(h.born) - time.Duration(h.heard.Load()); silent > h.cfg.Silence {
		return fmt.Errorf("live: Redis pub/sub is silent for %v", silent.Round(time.Millisecond))
	}
	return nil
}

// Stats counts what happened since the hub was made.
type Stats struct {
	Received  uint64 // messages with events
	Delivered uint64 // events put into the buffer of a subscription
	Strays    uint64 // recipients that had no subscription here any more
	Lagged    uint64 // subscriptions closed because their buffer was full
	Malformed uint64 // messages that could not be read
	Resyncs   uint64 // Resync events put into the buffer of a subscription
	Connects  uint64 // times the hub came online: 1 without a disturbance
}

// Stats returns the counters. They are not of one instant, and may be behind
// what a subscriber has already seen.
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
