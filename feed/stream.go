package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/live"
	"tideline/timeline"
)

// rememberGone is how many of the posts that it sent as removed a subscription
// remembers, so as not to say it twice.
const rememberGone = 64

// stayActive is how often an open subscription makes its user active: the longest
// that one hears of nothing when Redis forgets that and nothing else.
const stayActive = 5 * time.Minute

// startTimeout is how long a stream waits for the hub to listen for it, which
// cannot while Redis is away.
const startTimeout = 10 * time.Second

// Stream is one subscription on its way to the client: what happens to the
// viewer's timeline. It costs no goroutine: its reader is woken, and asks with
// Next. Its methods are for one goroutine at a time.
type Stream struct {
	feed   *Feed
	viewer Viewer
	wake   func()
	// clientState is what the client holds when it has got all that was sent.
	clientState
	newest int64   // newest post sent or known to the client
	gone   []int64 // the last ones sent as removed

	heartbeat time.Duration
	resuming  *cursor       // to be resumed after, before anything else
	ready     []Event       // to be handed out
	backlog   []backlogItem // to be told then, and
	risen     int64         // what low rises to when that is done
	sure      int           // so many of them were found to be as they say
	asked     int64         // when something had been hidden this often, and
	looked    time.Time     // at this time; since then
	since     int           // so many have been told
	drained   bool          // nothing waited when last looked
	ended     bool
	err       error

	beatDue, visitDue atomic.Bool

	mu     sync.Mutex
	sub    *live.Subscription
	timers []*time.Timer
	closed bool
}

// open begins to listen. The stream lasts until ctx ends.
func (s *Stream) open(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.listen(starting); err != nil {
		return err
	}
	s.tick(&s.visitDue, stayActive)
	if s.heartbeat > 0 {
		s.tick(&s.beatDue, s.heartbeat)
	}
	context.AfterFunc(ctx, s.close)
	return nil
}

func (s *Stream) listen(ctx context.Context) error {
	sub, err := s.feed.cfg.Hub.Subscribe(ctx, s.viewer.ID, s.wake)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	s.mu.Lock()
	s.sub = sub
	closed := s.closed
	s.mu.Unlock()
	if closed {
		sub.Close()
	}
	return nil
}

// tick sets due, and wakes the reader, once an interval until the stream ends.
func (s *Stream) tick(due *atomic.Bool, every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(every, func() {
		due.Store(true)
		s.wake()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			timer.Reset(every)
		}
	})
	s.timers = append(s.timers, timer)
}

func (s *Stream) close() {
	s.mu.Lock()
	s.closed = true
	sub, timers := s.sub, s.timers
	s.mu.Unlock()
	for _, timer := range timers {
		timer.Stop()
	}
	sub.Close() // which wakes the reader
}

// Ended reports whether nothing will come any more.
func (s *Stream) Ended() bool { return s.ended && len(s.ready) == 0 }

// Err is why a stream ended that could not go on: subscribing again, after the
// last position, brings the rest. It is nil of one that ended otherwise.
func (s *Stream) Err() error { return s.err }

// Next is the next event. It reads what it needs, but never waits for something
// to happen: ok is false when nothing has, and the reader is woken when something
// does. The context is that of the subscription.
//
// Cost: none while nothing waits; else a look-up of the post and its relation,
// shared by all who are told of it at once, and for one that resumes that of pages.
func (s *Stream) Next(ctx context.Context) (event Event, ok bool) {
	for {
		if len(s.ready) > 0 {
			event, s.ready = s.ready[0], s.ready[1:]
			return event, true
		}
		if s.ended {
			return nil, false
		}
		if ctx.Err() != nil {
			s.ended = true
			return nil, false
		}
		more, err := s.step(ctx)
		switch {
		case errors.Is(err, errStreamEnds) || ctx.Err() != nil:
			s.ready, s.ended = nil, true
		case err != nil:
			s.feed.log.WarnContext(ctx, "subscription interrupted", "viewer", s.viewer.ID, "error", err)
			s.err, s.ended = err, true
		case !more && len(s.ready) == 0:
			return nil, false
		}
		if s.ended {
			s.close()
		}
	}
}

// step does the next thing there is to do, if any.
func (s *Stream) step(ctx context.Context) (more bool, err error) {
	if after := s.resuming; after != nil {
		s.resuming = nil
		return true, s.resume(ctx, *after)
	}
	if len(s.backlog) > 0 {
		return true, s.tellNext(ctx)
	}
	if s.visitDue.Swap(false) {
		at := s.feed.visit(ctx, s.viewer.ID)
		if at.Epoch != 0 && at.Epoch != s.at.Epoch { // the inbox is another one
			return true, s.catchUp(ctx)
		}
	}
	// What arrived before a moment when nothing waited has been told.
	if s.drained || s.sub.Waiting() == 0 {
		s.advance(s.feed.settledID(ctx))
		s.drained = false
	}
	if s.beatDue.Swap(false) {
		s.send(&Heartbeat{Position: s.position()})
		return true, nil
	}
	ended := s.sub.Ended()
	ev, ok := s.sub.Take()
	switch {
	case ok && ev.Kind == live.MarkerMoved && s.heartbeat > 0:
		s.send(&Heartbeat{Position: s.position()})
		return true, nil
	case ok:
		return true, s.handle(ctx, ev)
	case ended:
		return true, s.resubscribe(ctx)
	}
	s.drained = true
	return false, nil
}

// resubscribe goes on after a subscription fell behind: with a new one, and what was
// missed.
func (s *Stream) resubscribe(ctx context.Context) error {
	if err := s.sub.Err(); !errors.Is(err, live.ErrLagged) {
		return cmp.Or(err, ctx.Err(), errStreamEnds)
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.listen(starting); err != nil {
		return err
	}
	// The end of the session may have been among what was missed.
	if err := s.stillSignedIn(ctx); err != nil {
		return err
	}
	return s.catchUp(ctx)
}

func (s *Stream) handle(ctx context.Context, ev live.Event) error {
	switch ev.Kind {
	case live.Added:
		if ev.Post <= journaledBefore(s.feed.now()) {
			if err := s.sendJournal(ctx); err != nil {
				return err
			}
		}
		if s.has(ev.Post) || ev.Post <= s.low {
			return nil
		}
		if len(s.ready)+len(s.backlog) > 0 { // what came late is told before
			at := s.at
			if n := len(s.backlog); n > 0 {
				at = s.backlog[n-1].at
			}
			s.backlog = append(s.backlog, backlogItem{id: ev.Post, at: at})
			return nil
		}
		return s.arrived(ctx, ev)
	case live.Removed:
		return s.removed(ctx, ev)
	case live.Invalidated:
		return s.startOver(ctx, ev.Reason)
	case live.JournalChanged:
		return s.sendJournal(ctx)
	case live.Resync:
		if err := s.stillSignedIn(ctx); err != nil {
			return err
		}
		s.feed.visit(ctx, s.viewer.ID) // Redis may have forgotten that the user is active
		return s.catchUp(ctx)
	case live.SessionEnded:
		if ev.Session == s.viewer.Session {
			return errStreamEnds
		}
	}
	return nil
}

// stillSignedIn ends the stream of a session that ended unheard.
func (s *Stream) stillSignedIn(ctx context.Context) error {
	ended, err := s.feed.EndedSessions(ctx, []int64{s.viewer.Session})
	if err == nil && s.viewer.Session != 0 && len(ended) > 0 {
		return errStreamEnds
	}
	return err
}

// verdict is a post and who may be shown it in the timeline.
type verdict struct {
	post   *ent.Post // nil: there is none
	sees   map[int64]bool
	asked  int64 // how often something had been hidden when the reading began
	common *sharedEvent
}

// verdictLasts bounds by how much a change in another process can be overlooked:
// who sends an event later than this looks again.
const verdictLasts = 100 * time.Millisecond

// arrived sends a post that was told of, if it may be shown.
func (s *Stream) arrived(ctx context.Context, ev live.Event) error {
	v, err := s.verdict(ctx, ev)
	if err == nil && v.sees[s.viewer.ID] {
		s.addWith(v.post, v.common)
	}
	return err
}

// verdict is about the post of an event. It is read, and checked for all whom the
// message was for, once in the process, after the message arrived and after the
// last change here that hid anything.
func (s *Stream) verdict(ctx context.Context, ev live.Event) (verdict, error) {
	holds := func(v verdict) bool { return v.asked == s.feed.visibilityVersion.Load() }
	return live.Share(ev.Batch, verdictLasts, holds, func(users []int64) (verdict, error) {
		if users == nil {
			users = []int64{s.viewer.ID}
		}
		v, err := s.feed.judge(ctx, ev.Post, users)
		if len(users) > 1 {
			v.common = &sharedEvent{feed: s.feed, post: ev.Post, users: users}
		}
		return v, err
	})
}

// judge reads a post with its author, and who of the users may be shown it in
// the timeline. It costs three queries, and one more per 20,000 users.
func (f *Feed) judge(ctx context.Context, id int64, users []int64) (v verdict, err error) {
	v.asked = f.visibilityVersion.Load()
	rows, err := f.db.Post.Query().Where(post.ID(id)).WithAuthor().All(ctx)
	if err != nil || len(rows) == 0 {
		return v, wrap("read post", err)
	}
	v.post, v.sees = rows[0], make(map[int64]bool, len(users))
	for chunk := range slices.Chunk(users, 20_000) {
		// Who may be shown it follows the author, or is the author.
		followers, err := f.Among(ctx, v.post.AuthorID, PostChange{Current: v.post}, chunk)
		if err != nil {
			return v, err
		}
		for _, follower := range followers {
			v.sees[follower.ID] = follower.Sees
		}
	}
	v.sees[v.post.AuthorID] = true
	return v, nil
}

// removed sends that a post is gone, unless it may be shown still.
func (s *Stream) removed(ctx context.Context, ev live.Event) error {
	v, err := s.verdict(ctx, ev)
	if err == nil && !v.sees[s.viewer.ID] {
		s.removeWith(ev.Post, v.common)
	}
	return err
}

func (s *Stream) add(p *ent.Post) { s.addWith(p, nil) }

func (s *Stream) addWith(p *ent.Post, c *sharedEvent) {
	s.take(p.ID)
	s.gone = slices.DeleteFunc(s.gone, func(gone int64) bool { return gone == p.ID })
	s.newest = max(s.newest, p.ID)
	s.send(&PostAdded{s.feed.entry(s.viewer, p, s.clientState), c})
}

func (s *Stream) remove(id int64) { s.removeWith(id, nil) }

func (s *Stream) removeWith(id int64, c *sharedEvent) {
	if slices.Contains(s.gone, id) {
		return
	}
	s.drop(id)
	if len(s.gone) == rememberGone {
		s.gone = slices.Delete(s.gone, 0, 1)
	}
	s.gone = append(s.gone, id)
	s.send(&PostRemoved{id, s.position(), c})
}

// resume sends what came since the cursor.
func (s *Stream) resume(ctx context.Context, after cursor) error {
	s.newest = after.id
	held, ok := after.held()
	if !ok {
		// The cursor tells a place and no more: what lies above it is missed. What
		// lies below the client reads again, and may be on its way still.
		held = clientState{low: min(after.id, s.feed.settledID(ctx))}
		ids, _, err := s.feed.recentIDs(ctx, s.viewer.ID, span{low: held.low, high: after.id + 1}, true)
		if err != nil {
			return err
		}
		if len(ids) > maxRecent {
			return s.startOver(ctx, "more was posted than is replayed")
		}
		for _, id := range ids {
			held.take(id)
		}
	}
	s.clientState = held
	return s.catchUp(ctx)
}

// catchUp sends what came since, oldest first, after Invalidated when that may
// not be all.
func (s *Stream) catchUp(ctx context.Context) error {
	noted, now, whole := s.changes(ctx)
	if !whole { // Redis may have forgotten the user
		s.at = s.feed.visit(ctx, s.viewer.ID)
		now = s.at
	}
	s.look()
	risen := s.feed.settledID(ctx)
	missed, err := s.feed.fill(ctx, HomeTimeline, s.viewer.ID, s.feed.cfg.InboxCap,
		span{low: s.low, ascending: true}, s.feed.cached(s.feed.inbox(s.viewer.ID)))
	if err != nil {
		return err
	}
	if len(missed) == s.feed.cfg.InboxCap {
		return s.startOver(ctx, "more was posted than is replayed")
	}
	if !whole {
		// It loses what it reads no more, whether it was told so or not, and may get
		// back what it was told had gone.
		held := idsOf(missed)
		s.recent = slices.DeleteFunc(s.recent, func(id int64) bool { return id > s.low && !slices.Contains(held, id) })
		s.gone = nil
		s.send(&Invalidated{Reason: "events may have been missed", Position: s.position()})
	}
	untold, err := s.news(ctx, noted, now)
	if err != nil {
		return err
	}
	for _, p := range missed {
		if !s.has(p.ID) {
			untold = append(untold, backlogItem{id: p.ID, post: p, at: now})
		}
	}
	s.tell(untold, now, risen)
	return nil
}

// sendJournal sends what the journal noted: a post that came sendJournal, if it is not known.
func (s *Stream) sendJournal(ctx context.Context) error {
	noted, now, whole := s.changes(ctx)
	if !whole {
		return s.startOver(ctx, "events may have been missed")
	}
	s.look()
	untold, err := s.news(ctx, noted, now)
	if err == nil {
		s.tell(untold, now, 0)
	}
	return err
}

// changes are the notes in the journal since the client's position, and where it
// stands now. Not whole: nobody knows what they were.
func (s *Stream) changes(ctx context.Context) (noted []timeline.Change, now timeline.Position, whole bool) {
	noted, now, whole, err := s.feed.tl.Changes(ctx, s.viewer.ID, s.at)
	if err != nil && ctx.Err() == nil {
		// A client that cannot be told what changed is told that much.
		s.feed.log.WarnContext(ctx, "journal not read", "viewer", s.viewer.ID, "error", err)
	}
	return noted, now, whole
}

// startOver tells the client to read again, and goes on from what it will read.
func (s *Stream) startOver(ctx context.Context, reason string) error {
	at := s.feed.visit(ctx, s.viewer.ID)
	held, err := s.feed.clientStateOf(ctx, s.viewer, at, nil, true)
	if err != nil {
		return err
	}
	s.clientState = held
	if n := len(held.recent); n > 0 {
		s.newest = max(s.newest, held.recent[n-1])
	}
	s.gone = nil
	s.send(&Invalidated{Reason: reason, Position: s.position()})
	return nil
}

// position is the cursor that the client resumes after when it has got what was
// sent so far.
func (s *Stream) position() string { return s.cursor(s.viewer, s.newest) }

func (s *Stream) send(ev Event) { s.ready = append(s.ready, ev) }
