// Package stream sends a viewer the changes of the home timeline, or of a conversation, as they happen.
//
// A subscriber that resumes after its last cursor misses nothing and receives no post
// twice. If the stream cannot guarantee that, it sends Invalidated. RESUME.md describes
// the protocol. Package live carries the messages between processes. Package home
// computes client states and reads what a client missed.
//
// CONVERSATIONS.md describes the protocol of conversations. Their changes are recorded in Redis while
// somebody watches, see timeline.Topics.
package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// Config configures Streams. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Visibility *visibility.Reader
	Home       *home.Home
	Topics     *timeline.Topics
	Sessions   *session.Store
	Hub        *live.Hub
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Streams opens streams. It is safe for concurrent use.
type Streams struct {
	cfg   Config
	home  *home.Home
	posts *visibility.Reader
	turns chan struct{}
	// waiting counts the streams that wait for a turn.
	waiting     atomic.Int64
	invalidated map[Cause]*atomic.Uint64 // how many were sent; New fills the map

	watching sync.Mutex              // guards watchers
	watchers map[int64]map[int64]int // the number of streams by conversation and viewer
}

// New returns Streams. It fails when a required field is missing.
func New(cfg Config) (*Streams, error) {
	if cfg.DB == nil || cfg.Visibility == nil || cfg.Home == nil || cfg.Topics == nil || cfg.Sessions == nil || cfg.Hub == nil {
		return nil, errors.New("stream: DB, Visibility, Home, Topics, Sessions and Hub are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Streams{cfg: cfg, home: cfg.Home, posts: cfg.Visibility, turns: make(chan struct{}, turns*runtime.GOMAXPROCS(0)), watchers: map[int64]map[int64]int{}}
	s.invalidated = make(map[Cause]*atomic.Uint64, len(causes))
	for _, cause := range causes {
		s.invalidated[cause] = new(atomic.Uint64)
	}
	cfg.Hub.Prepare(s.prepare)
	return s, nil
}

// Stats counts the streams that are catching up, and the streams that wait to do so. All other
// streams are up to date.
type Stats struct {
	CatchingUp, Waiting int
	// Invalidated counts, by cause, how often a client was told to read again since the process
	// started. It has every Cause.
	Invalidated map[Cause]uint64
}

// Stats returns the current counts.
func (s *Streams) Stats() Stats {
	stats := Stats{len(s.turns), int(s.waiting.Load()), make(map[Cause]uint64, len(causes))}
	for cause, n := range s.invalidated {
		stats.Invalidated[cause] = n.Load()
	}
	return stats
}

// Options are the arguments of a client that subscribes.
type Options struct {
	// After is the position of the page that the client read or of the last event that it
	// received, or the cursor of its newest entry. If After is nil, the client receives the
	// changes from now on.
	After *string
	// Heartbeat is the time between heartbeats, 1 s to an hour, or 0 for no heartbeats. The
	// stream sends an extra heartbeat when another device moves the read marker and when the
	// requests to follow the viewer change.
	Heartbeat time.Duration
	// Updates asks for PostUpdated, also for posts that were edited while the client was away.
	Updates bool
}

// Listen streams the changes of the viewer's timeline until ctx or the session ends. The
// stream calls wake when it has an event and when it ends, possibly before Listen
// returns. wake must return at once and must not call the stream.
//
// After a cursor, the stream first sends the changes since then, including late posts and
// removals, and then new changes. It skips nothing and repeats no post. If it cannot
// guarantee that, it sends Invalidated first. Errors: Unauthenticated, BadInput.
//
// Cost: two round trips to Redis, one of them to register at the hub, and a query for changed posts. Without a
// cursor, also a round trip, and a query of the posts that are younger than two minutes, if any. After a cursor,
// also the cost of the first pages, which are read as the client takes events, and one more read each time that
// the client reads slowly. If the inbox is missing, also the cost of home.Reader.BuildInbox; without a cursor,
// Listen waits at most a second for it.
func (s *Streams) Listen(ctx context.Context, v session.Viewer, o Options, wake func()) (*Stream, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if o.Heartbeat != 0 && (o.Heartbeat < time.Second || o.Heartbeat > time.Hour) {
		return nil, refusal.New(refusal.OutOfRange, "heartbeat must be 1 to 3600 seconds.").In("heartbeat")
	}
	t := &Stream{subscription: subscription[Event]{streams: s, viewer: v, wake: wake}, heartbeat: o.Heartbeat, updates: o.Updates}
	if o.After != nil {
		after, err := paging.Decode(*o.After, paging.Latest, v.ID)
		if err != nil {
			return nil, err
		}
		t.resuming = &after
	} else {
		// The client reads the present timeline itself. The stream reads the client state
		// before it subscribes at the hub, and then catches up. So it sends every later change.
		var err error
		if t.client, err = s.home.Clients.Now(ctx, v); err != nil {
			return nil, err
		}
		t.newest = t.client.Newest()
	}
	// The stream subscribes at the hub before it reads what the client missed, so it loses no
	// change in between. Events are not published to users who are not active. The read drops the inbox of
	// such a user, and the stream tells the client to read again.
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	if t.resuming == nil {
		if err := t.inTurn(ctx, t.catchUp); err != nil {
			t.close()
			return nil, err
		}
	}
	wake() // a resume or a catch-up may have events to send
	return t, nil
}
