// Package stream brings a viewer the changes of the home timeline as they happen.
//
// It delivers, or it says Invalidated: a subscriber that resumes after its last
// cursor misses nothing and gets nothing twice. RESUME.md tells the protocol.
// Package live carries the messages between processes, package home keeps track of
// the client state.
package stream

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/live"
)

// Config configures Streams. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Visibility *visibility.Reader
	Home       *home.Home
	Sessions   *account.Sessions
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
	// waiting are the streams that wait for one of the turns.
	waiting     atomic.Int64
	invalidated map[Cause]*atomic.Uint64 // how many were sent; not written to once made
}

// New returns Streams. It fails when a required field is missing.
func New(cfg Config) (*Streams, error) {
	if cfg.DB == nil || cfg.Visibility == nil || cfg.Home == nil || cfg.Sessions == nil || cfg.Hub == nil {
		return nil, errors.New("stream: DB, Visibility, Home, Sessions and Hub are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Streams{cfg: cfg, home: cfg.Home, posts: cfg.Visibility, turns: make(chan struct{}, turns*runtime.GOMAXPROCS(0))}
	s.invalidated = make(map[Cause]*atomic.Uint64, len(causes))
	for _, cause := range causes {
		s.invalidated[cause] = new(atomic.Uint64)
	}
	cfg.Hub.Prepare(s.prepare)
	return s, nil
}

// Stats counts the streams that catch up with what they missed, and those that wait to do
// so. All others have got what there is.
type Stats struct {
	CatchingUp, Waiting int
	// Invalidated is how often a client was told to read again since the process began, by the
	// cause. It has every Cause.
	Invalidated map[Cause]uint64
}

// Stats returns the counts of this moment.
func (s *Streams) Stats() Stats {
	stats := Stats{len(s.turns), int(s.waiting.Load()), make(map[Cause]uint64, len(causes))}
	for cause, n := range s.invalidated {
		stats.Invalidated[cause] = n.Load()
	}
	return stats
}

// Options say what a client asks of Listen.
type Options struct {
	// After is the position of the page the client read, or of the last event it
	// got, or the cursor of the newest entry it has. If it is nil, the client gets what happens from now
	// on.
	After *string
	// Heartbeat is the time between heartbeats, 1 s to an hour. One also comes
	// whenever another device moves the read marker, and whenever the requests to follow the
	// viewer change. Without heartbeats it is 0.
	Heartbeat time.Duration
	// Updates asks for PostUpdated, also of what was edited while the client was away.
	Updates bool
}

// Listen streams what happens to the viewer's timeline until ctx or the session
// ends. The stream calls wake whenever it has an event, and at its end, also before
// Listen has returned; wake must return at once and must not call the stream.
//
// After a cursor, the changes since then come first, late arrivals and removals
// included, then new ones, with nothing missing and nothing twice in between. Where
// that cannot be promised, the first event is Invalidated. Errors: Unauthenticated,
// BadInput.
//
// Cost: three round trips, and a query of the posts that are younger than two minutes, if
// any; that of home.BuildInbox, and at most a second of waiting for it, if the inbox is
// missing; after a cursor, those of the first pages, which are read as the client takes
// events, and one more each time that the client reads slowly.
func (s *Streams) Listen(ctx context.Context, v account.Viewer, o Options, wake func()) (*Stream, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if o.Heartbeat != 0 && (o.Heartbeat < time.Second || o.Heartbeat > time.Hour) {
		return nil, refusal.New(refusal.OutOfRange, "heartbeat must be 1 to 3600 seconds.").In("heartbeat")
	}
	t := &Stream{streams: s, viewer: v, wake: wake, heartbeat: o.Heartbeat, updates: o.Updates}
	if o.After != nil {
		after, err := paging.Decode(*o.After, paging.Latest, v.ID)
		if err != nil {
			return nil, err
		}
		t.resuming = &after
	}
	// From the visit on posts are pushed.
	if t.resuming != nil {
		s.home.Visit(ctx, v.ID)
	} else {
		// The client reads the present timeline by itself. The stream reads the client
		// state before it listens, and then catches up: so it sends every later change.
		var err error
		if t.client, err = s.home.ClientStateNow(ctx, v); err != nil {
			return nil, err
		}
		t.newest = t.client.Newest()
	}
	// Listening starts before the replay reads, so no change falls between the two.
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	if t.resuming == nil {
		if err := t.inTurn(ctx, t.catchUp); err != nil {
			t.close()
			return nil, err
		}
	}
	wake() // there may be something to replay
	return t, nil
}
