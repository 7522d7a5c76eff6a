package stream

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
	"tideline/feed/account"
	"tideline/feed/clientstate"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/live"
)

// errStreamEnds ends a stream whose session has ended.
var errStreamEnds = errors.New("stream ends")

// rememberGone is how many of the posts that it sent as removed a subscription
// remembers, so as not to say it twice.
const rememberGone = 64

// journalLag is how many removals the stream is told of before it reads the journal, which keeps
// a hundred: so the client's position in it stays good. It is less than rememberGone.
const journalLag = 50

// stayActive is how often an open subscription makes its user active: the longest
// that one hears of nothing when Redis forgets that and nothing else.
const stayActive = 5 * time.Minute

// startTimeout is how long a stream waits for the hub to listen for it, which
// cannot while Redis is away.
const startTimeout = 10 * time.Second

const (
	// turns is how many streams of a process catch up at the same time, for each of its
	// processors. When a process loses its connection to Redis, all its streams look again;
	// this spreads them over time, so that pages find SQL, Redis and a processor free.
	turns = 2
	// turnTimeout bounds one turn. A stream that takes longer is interrupted.
	turnTimeout = 30 * time.Second
)

// Stream is one subscription on its way to the client: what happens to the
// viewer's timeline. It costs no goroutine: its reader is woken, and asks with
// Next. Its methods are for one goroutine at a time.
type Stream struct {
	streams *Streams
	viewer  account.Viewer
	wake    func()
	// client is the state of the client when it has got all that was sent.
	client clientstate.State
	newest int64   // newest post sent or known to the client
	gone   []int64 // the last ones sent as removed

	heartbeat time.Duration
	updates   bool           // whether PostUpdated is asked for
	resuming  *paging.Cursor // to be resumed after, before anything else
	ready     []Event        // to be handed out
	backlog   backlog        // to be sent then
	ended     bool
	err       error

	// nameAt is how many posts the client state names when the stream settles the inbox anew,
	// and removals are those that the stream was told of since it read the journal.
	nameAt, removals int

	beatDue, visitDue atomic.Bool

	mu     sync.Mutex
	sub    *live.Subscription
	tell   func() (wait <-chan struct{}) // see TellBy
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
	sub, err := s.streams.cfg.Hub.Subscribe(ctx, s.viewer.ID, s.wake)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	s.mu.Lock()
	s.sub = sub
	sub.TellBy(s.tell)
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
			s.interrupt(ctx, err)
		case !more && len(s.ready) == 0:
			return nil, false
		}
		if s.ended {
			s.close()
		}
	}
}

// interrupt ends a stream that cannot go on.
func (s *Stream) interrupt(ctx context.Context, err error) {
	s.streams.cfg.Logger.WarnContext(ctx, "subscription interrupted", "viewer", s.viewer.ID, "error", err)
	s.err, s.ended = err, true
	s.close()
}

// step does the next thing there is to do, if any.
func (s *Stream) step(ctx context.Context) (more bool, err error) {
	if after := s.resuming; after != nil {
		s.resuming = nil
		return true, s.inTurn(ctx, func(ctx context.Context) error { return s.resume(ctx, *after) })
	}
	if len(s.backlog.items) > 0 {
		return true, s.sendNext(ctx)
	}
	if s.visitDue.Swap(false) {
		at := s.streams.home.Visit(ctx, s.viewer.ID)
		if at.Epoch != 0 && at.Epoch != s.client.Position.Epoch { // the inbox is another one
			return true, s.inTurn(ctx, s.catchUp)
		}
		if at.Offset-s.client.Position.Offset >= journalLag {
			s.removals = journalLag
		}
	}
	if s.removals >= journalLag {
		return true, s.sendJournal(ctx, "")
	}
	// Nothing but this, and what the stream reads by itself, raises what the client is
	// taken to have.
	s.client.Advance(s.sub.Covered())
	if s.namesMany() {
		return true, s.inTurn(ctx, s.settle)
	}
	if s.beatDue.Swap(false) {
		s.beat()
		return true, nil
	}
	ended := s.sub.Ended()
	ev, ok := s.sub.Take()
	ev.Batch.Trace(ctx)
	switch {
	case ok && ev.Kind == live.MarkerMoved && s.heartbeat > 0:
		s.beat()
		return true, nil
	case ok:
		return true, s.handle(ctx, ev)
	case ended:
		return true, s.resubscribe(ctx)
	}
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
	return s.inTurn(ctx, s.resync)
}

// resync goes on after events may have been lost. The end of the session may have been
// among them, and Redis may have forgotten that the user is active.
func (s *Stream) resync(ctx context.Context) error {
	if err := s.stillSignedIn(ctx); err != nil {
		return err
	}
	s.streams.home.Visit(ctx, s.viewer.ID)
	return s.catchUp(ctx)
}

// inTurn waits for one of the turns, and does something in it.
func (s *Stream) inTurn(ctx context.Context, do func(context.Context) error) error {
	s.streams.waiting.Add(1)
	select {
	case s.streams.turns <- struct{}{}:
		s.streams.waiting.Add(-1)
	case <-ctx.Done():
		s.streams.waiting.Add(-1)
		return ctx.Err()
	}
	defer func() { <-s.streams.turns }()
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	return do(ctx)
}

func (s *Stream) handle(ctx context.Context, ev live.Event) error {
	switch ev.Kind {
	case live.Added:
		if s.streams.home.MayBeLate(ev.Post) {
			if err := s.sendJournal(ctx, ""); err != nil {
				return err
			}
		}
		if ev.Reason == live.Edited && s.client.MayHave(ev.Post) {
			return s.edited(ctx, ev)
		}
		if s.client.Knows(ev.Post) {
			return nil
		}
		if b := &s.backlog; len(s.ready)+len(b.items) > 0 { // what came late is sent before
			position := s.client.Position
			if n := len(b.items); n > 0 {
				position = b.items[n-1].position
			}
			b.items = append(b.items, backlogItem{id: ev.Post, position: position})
			return nil
		}
		return s.arrived(ctx, ev)
	case live.Removed:
		s.removals++
		return s.removed(ctx, ev)
	case live.Invalidated, live.JournalChanged:
		// Before an Invalidated is published, all positions of that time become worthless.
		// A position that is good is a later one: the client has been told to read again
		// since, or has read its timeline since, and is not told once more.
		return s.sendJournal(ctx, ev.Reason)
	case live.Resync:
		return s.inTurn(ctx, s.resync)
	case live.SessionEnded:
		if ev.Session == 0 {
			return s.inTurn(ctx, s.stillSignedIn)
		}
		if ev.Session == s.viewer.Session {
			return errStreamEnds
		}
	}
	return nil
}

// stillSignedIn asks SQL, and ends the stream if its session has ended.
func (s *Stream) stillSignedIn(ctx context.Context) error {
	ended, err := s.streams.cfg.Sessions.Ended(ctx, []account.Grant{s.viewer.Grant()})
	if err == nil && s.viewer.Session != 0 && len(ended) > 0 {
		return errStreamEnds
	}
	return err
}

// verdictLasts bounds by how much a change in another process can be overlooked: an
// event that is sent later than this is judged again.
const verdictLasts = 100 * time.Millisecond

// arrived sends a post that was told of, if it may be shown.
func (s *Stream) arrived(ctx context.Context, ev live.Event) error {
	post, e, err := s.judge(ctx, ev)
	if err == nil && post != nil {
		s.add(post, e)
	}
	return err
}

// removed sends that a post is gone. One that is shown again by now was hidden for a while,
// in which an edit is left out: see editedItems.
func (s *Stream) removed(ctx context.Context, ev live.Event) error {
	post, e, err := s.judge(ctx, ev)
	switch {
	case err != nil:
		return err
	case post == nil:
		s.remove(ev.Post, ev.Author == s.viewer.ID, e)
	case s.updates && post.EditedAt > 0 && s.client.MayHave(ev.Post):
		s.update(post, nil)
	}
	return nil
}

// judge returns the post of an event, nil if the viewer may not be shown it. It is
// read after the message arrived and after the last change here that hid anything.
// It is read once in the process, for all streams that the message is for. If these are of
// several users, they share the event.
func (s *Stream) judge(ctx context.Context, ev live.Event) (post *ent.Post, e *sharedEvent, err error) {
	found, err := s.streams.share(ctx, ev)
	if err != nil {
		return nil, nil, err
	}
	if found.verdict.Sees(s.viewer.ID) {
		post = found.verdict.Post
	}
	if len(found.users) > 1 {
		e = found
	}
	return post, e, nil
}

// add sends a post, which the event brings to several streams unless it is nil.
func (s *Stream) add(p *ent.Post, e *sharedEvent) {
	before := s.newest
	s.took(p.ID)
	s.send(&PostAdded{Edge: s.client.Entry(s.viewer, p), sharedEvent: e, before: before})
}

// took notes that the client gets the post.
func (s *Stream) took(id int64) {
	s.client.Take(id)
	s.gone = slices.DeleteFunc(s.gone, func(gone int64) bool { return gone == id })
	s.newest = max(s.newest, id)
}

// remove sends that a post is gone, once. What is deleted was the viewer's own, which
// nothing else takes away.
func (s *Stream) remove(id int64, deleted bool, e *sharedEvent) {
	if slices.Contains(s.gone, id) {
		return
	}
	s.client.Drop(id)
	if len(s.gone) == rememberGone {
		s.gone = slices.Delete(s.gone, 0, 1)
	}
	s.gone = append(s.gone, id)
	if deleted {
		e = nil // to those who share it the post is hidden
	}
	s.send(&PostRemoved{id, s.position(), deleted, e})
}

// resume sends what came since the cursor.
func (s *Stream) resume(ctx context.Context, after paging.Cursor) error {
	s.newest = after.ID
	state, ok, err := s.streams.home.ClientStateAt(ctx, s.viewer, after)
	if err != nil {
		return err
	}
	if !ok {
		return s.startOver(ctx, tooMuch, TooManyPosts)
	}
	s.client = state
	return s.catchUp(ctx)
}

// catchUp sends what came since, oldest first, after Invalidated when that may
// not be all.
func (s *Stream) catchUp(ctx context.Context) error { return s.catchUpAs(ctx, false) }

// namesMany reports whether the client state names so many posts that the stream settles the
// inbox anew, to keep its cursors small.
func (s *Stream) namesMany() bool {
	named, _ := s.client.Named(1)
	return named > max(s.nameAt, 2*clientstate.MaxRecent)
}

// settle catches up although nothing was lost: what came is told, or its event is on its way. If
// Redis does not answer, cursors grow until it is tried again.
func (s *Stream) settle(ctx context.Context) error {
	named, _ := s.client.Named(1)
	s.nameAt = named + clientstate.MaxRecent
	return s.catchUpAs(ctx, true)
}

// catchUpAs is catchUp, or settle if told says that no event was lost.
func (s *Stream) catchUpAs(ctx context.Context, told bool) error {
	s.backlog.check(s.streams)
	m, why, err := s.streams.home.MissedSince(ctx, s.viewer, &s.client, told)
	if err != nil || told && why == home.NoRedis {
		return err
	}
	whole := why == ""
	if _, settled := s.client.Settled(); !whole && settled {
		return s.startOver(ctx, mayHaveMissed, Cause(why)) // the client state does not say what the client misses
	}
	if !whole {
		home := s.streams.home
		m.Now = home.Visit(ctx, s.viewer.ID).Position // Redis may have forgotten the user
		s.client.Position = m.Now
		s.backlog.check(s.streams)
		m.Arrived = home.ArrivedID(ctx)
		var all bool
		if m.Posts, all, err = home.Since(ctx, s.viewer, s.client.Low(), true); err != nil {
			return err
		}
		m.More = !all
	}
	switch {
	case m.More && told: // their events are on their way, or the subscription lags behind
		return nil
	case m.More:
		return s.startOver(ctx, tooMuch, TooManyPosts)
	}
	if !whole {
		// The client loses what it reads no more, whether it was told so or not, and may
		// get back what it was told had gone.
		s.client.Retain(m.Posts)
		s.gone = nil
		s.invalidate(mayHaveMissed, Cause(why))
	}
	items, err := s.journaled(ctx, m.Changes, m.Now)
	if err != nil {
		return err
	}
	if whole && !told { // else the client reads what posts say now, or was told
		edited, all, err := s.editedItems(ctx, m.Now)
		if err != nil {
			return err
		}
		if !all {
			return s.startOver(ctx, tooMuch, TooManyEdits)
		}
		items = append(items, edited...)
	}
	for _, p := range m.Posts {
		if !s.client.Has(p.ID) {
			items = append(items, backlogItem{id: p.ID, post: p, position: m.Now})
		}
	}
	s.queue(items, m.Now, known{m.Arrived, m.Bound, m.Settled})
	return nil
}

// sendJournal sends what the journal has noted since the client's position: late posts
// that the client does not have, and removals. When nobody knows what that is, the
// client is told to read again, for the reason given, if any.
func (s *Stream) sendJournal(ctx context.Context, reason string) error {
	changes, now, why := s.streams.home.Changes(ctx, s.viewer, s.client.Position)
	if why != "" {
		s.removals = 0
		cause := Cause(why)
		if reason != "" {
			cause = Changed
		}
		return s.startOver(ctx, cmp.Or(reason, mayHaveMissed), cause)
	}
	s.backlog.check(s.streams)
	items, err := s.journaled(ctx, changes, now)
	if err == nil {
		s.queue(items, now, known{})
	}
	return err
}

// startOver tells the client to read again, and goes on from what it will read.
func (s *Stream) startOver(ctx context.Context, reason string, cause Cause) error {
	state, err := s.streams.home.ClientStateNow(ctx, s.viewer)
	if err != nil {
		return err
	}
	s.client = state
	s.newest = max(s.newest, state.Newest())
	s.gone = nil
	s.invalidate(reason, cause)
	return nil
}

// invalidate sends that the client has to read again.
func (s *Stream) invalidate(reason string, cause Cause) {
	s.streams.invalidated[cause].Add(1)
	s.send(&Invalidated{Reason: reason, Position: s.position()})
}

// The reasons of an Invalidated that the stream finds itself.
const (
	tooMuch       = "more was posted than is replayed"
	mayHaveMissed = "events may have been missed"
)

// Cause says why a client was told to read again, for the metric: a [home.Unknown], or a cause of this package.
type Cause string

// The causes of this package.
const (
	TooManyPosts Cause = "too_many_posts"   // more came while the client was away than is replayed
	TooManyEdits Cause = "too_many_edits"   // more was edited
	Changed      Cause = "timeline_changed" // a relation of the viewer changed, or the muted words
)

// causes are all causes.
var causes = []Cause{
	TooManyPosts, TooManyEdits, Changed, Cause(home.NoPosition), Cause(home.NoRedis), Cause(home.Rebuilt), Cause(home.Forgotten), Cause(home.OutOfOrder),
}

// position is the cursor that the client resumes after when it has got what was
// sent so far.
func (s *Stream) position() string { return s.client.Cursor(s.viewer, s.newest) }

// beat sends a heartbeat.
func (s *Stream) beat() {
	s.send(&Heartbeat{
		Position: s.position(), CompleteUpTo: ids.TimeOf(s.client.Low()), LateBy: int(s.streams.home.LateBy().Seconds()),
	})
}

func (s *Stream) send(ev Event) { s.ready = append(s.ready, ev) }
