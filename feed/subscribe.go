package feed

import (
	"context"
	"errors"
	"time"

	"tideline/ent"
	"tideline/live"
)

// errStreamEnds ends a stream whose session has ended.
var errStreamEnds = errors.New("stream ends")

// Event is what a stream brings: *PostAdded, *PostRemoved, *Invalidated or
// *Heartbeat.
type Event interface{ event() }

func (*PostAdded) event()   {}
func (*PostRemoved) event() {}
func (*Invalidated) event() {}
func (*Heartbeat) event()   {}

// PostAdded says that a post entered the timeline. A client that resumes after
// the edge's cursor misses nothing and gets nothing twice.
type PostAdded struct {
	Edge Edge[ent.Post]
	*sharedEvent
}

// Position is the cursor to resume after.
func (e *PostAdded) Position() string { return e.Edge.Cursor }

// PostRemoved says that a post left it.
type PostRemoved struct {
	PostID   int64
	Position string // the cursor to resume after
	*sharedEvent
}

// Invalidated says that more happened than is told one by one: read the
// timeline again.
type Invalidated struct {
	Reason   string
	Position string
}

// Heartbeat says that nothing was missed up to here.
type Heartbeat struct{ Position string }

// Listening is what a client asks of Listen.
type Listening struct {
	// After is the cursor of the newest entry the client holds, or the position
	// of the last event it got; nil: the client wants what happens from now on.
	After *string
	// Heartbeat is how often it wants one, 1 s to an hour, and whenever another
	// device moves the read marker; 0: never.
	Heartbeat time.Duration
}

// Listen streams what happens to the viewer's timeline until ctx or the session
// ends. Whenever the stream has something, its end included, wake is called, also
// before Listen has returned; it must return at once and must not call the stream.
//
// After a cursor, what came since comes first, late arrivals and removals
// included, and then what happens, with nothing missing and nothing twice in
// between; where that cannot be promised, the first event is Invalidated.
// Errors: Unauthenticated, BadInput.
//
// Cost: one look-up and two round trips, and a query of the posts that are younger
// than two minutes, if any; after a cursor, those of the first pages, read as they
// are taken, and one more each time that the client takes its time.
func (f *Feed) Listen(ctx context.Context, v Viewer, l Listening, wake func()) (*Stream, error) {
	if v.ID == 0 {
		return nil, errSignIn
	}
	if l.Heartbeat != 0 && (l.Heartbeat < time.Second || l.Heartbeat > time.Hour) {
		return nil, refuse(BadInput, "heartbeat must be 1 to 3600 seconds.")
	}
	w, err := f.open(Page{Before: l.After}, listLatest, v.ID)
	if err != nil {
		return nil, err
	}
	s := &Stream{feed: f, viewer: v, wake: wake, heartbeat: l.Heartbeat, resuming: w.before}
	at := f.visit(ctx, v.ID) // from now on posts are pushed
	if w.before == nil {
		// What there is now the client reads by itself; it is looked at before
		// listening starts, so that whatever comes after that is told.
		s.clientState, err = f.clientStateOf(ctx, v, at, nil, true)
		if err != nil {
			return nil, err
		}
		if n := len(s.recent); n > 0 {
			s.newest = s.recent[n-1]
		}
	}
	// Listening starts before the replay reads, so there is no seam between them.
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	wake() // there may be something to replay
	return s, nil
}

// announceLogOut ends the session's subscriptions on every process.
func (f *Feed) announceLogOut(ctx context.Context, v Viewer) {
	_, err := f.cfg.Publisher.Publish(ctx, live.Event{Kind: live.SessionEnded, Session: v.Session}, []int64{v.ID})
	if err != nil {
		f.log.WarnContext(ctx, "open subscriptions not told of the log-out", "error", err)
	}
}

// announceMarker tells the viewer's devices that the read marker moved.
func (f *Feed) announceMarker(ctx context.Context, v Viewer) {
	_, err := f.cfg.Publisher.Publish(ctx, live.Event{Kind: live.MarkerMoved}, []int64{v.ID})
	if err != nil {
		f.log.WarnContext(ctx, "other devices not told of the read marker", "error", err)
	}
}
