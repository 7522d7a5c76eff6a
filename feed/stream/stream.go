package stream

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/feed/clientstate"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/live"
	"tideline/timeline"
)

// rememberGone is how many removed posts a stream remembers, so that it does not send
// a removal twice.
const rememberGone = 64

// journalLag is how many removals a stream receives before it reads the journal. The journal keeps
// 100 entries, so the client's position in it stays valid. It is less than rememberGone.
const journalLag = 50

// stayActive is how often an open stream marks its user as active. If Redis loses only that
// mark, the stream may receive nothing for this long.
const stayActive = 5 * time.Minute

// Stream delivers the changes of the viewer's timeline to one client. It has no goroutine: it
// wakes its reader, and the reader calls Next. Only one goroutine at a time may use it.
type Stream struct {
	subscription[Event]

	// client is the client state after the client has received everything that was sent.
	client clientstate.State
	newest int64   // newest post that was sent or that the client had
	gone   []int64 // the last posts sent as removed

	heartbeat time.Duration
	updates   bool           // whether PostUpdated is asked for
	resuming  *paging.Cursor // the cursor to resume after, until that has begun
	backlog   backlog        // what Next reads and returns after ready

	nameAt   int // the stream does not settle before the client state names more posts than this
	removals int // how many removals were received since the journal was read

	beatDue, visitDue atomic.Bool
}

// sub returns the subscription to the events of the viewer's timeline.
func (s *Stream) sub() *live.Subscription { return s.subs[0] }

// open subscribes at the hub and starts the timers. The stream lasts until ctx ends.
func (s *Stream) open(ctx context.Context) error {
	if err := s.subscription.open(ctx, s.viewer.ID); err != nil {
		return err
	}
	s.visits = s.tick(&s.visitDue, stayActive)
	if s.heartbeat > 0 {
		s.tick(&s.beatDue, s.heartbeat)
	}
	return nil
}

// Next returns the next event. It reads from the stores, but never waits for an event: if there
// is none, ok is false, and the stream wakes the reader later. ctx is the context of the
// subscription.
//
// Cost: none while no event waits. Otherwise one look-up of the post and its relation, shared by
// all recipients of the event; when the stream resumes, the cost of pages.
func (s *Stream) Next(ctx context.Context) (event Event, ok bool) { return s.next(ctx, s.step) }

// step does the next piece of work, if any. more is false if there was none.
func (s *Stream) step(ctx context.Context) (more bool, err error) {
	if s.signedOut.Load() {
		return false, errStreamEnds
	}
	if after := s.resuming; after != nil {
		s.resuming = nil
		return true, s.inTurn(ctx, func(ctx context.Context) error { return s.resume(ctx, *after) })
	}
	if len(s.backlog.items) > 0 {
		return true, s.sendNext(ctx)
	}
	if s.visitDue.Swap(false) {
		at := s.visit(ctx)
		if at.Epoch != 0 && at.Epoch != s.client.Position.Epoch { // the inbox was built anew
			return true, s.inTurn(ctx, s.catchUp)
		}
		if at.Offset-s.client.Position.Offset >= journalLag {
			s.removals = journalLag
		}
	}
	if s.removals >= journalLag {
		return true, s.sendJournal(ctx, "")
	}
	// Apart from the stream's own reads, only a covered mark raises Low. Without a position, nothing may
	// have been published to the user.
	if s.client.Position.Epoch != 0 {
		s.client.Advance(s.sub().Covered())
	}
	if s.namesMany() {
		return true, s.inTurn(ctx, s.settle)
	}
	if s.beatDue.Swap(false) {
		s.beat()
		return true, nil
	}
	ended := s.sub().Ended()
	ev, ok := s.sub().Take()
	ev.Batch.Trace(ctx)
	switch {
	case ok && ev.Kind == live.MarkerMoved && s.heartbeat > 0:
		s.beat()
		return true, nil
	case ok:
		return true, s.handle(ctx, ev)
	case ended:
		return true, s.resubscribe(ctx, s.sub(), s.resync)
	}
	return false, nil
}

// resync catches up after events may have been lost. Redis may have forgotten that the user is
// active.
func (s *Stream) resync(ctx context.Context) error {
	s.visit(ctx)
	return s.catchUp(ctx)
}

// visit marks the user as active. If Redis does not answer, the position is zero, and the stream visits
// again soon.
func (s *Stream) visit(ctx context.Context) timeline.Position {
	at := s.streams.home.Reader.Visit(ctx, s.viewer.ID).Position
	if at.Epoch == 0 {
		s.visitSoon()
	}
	return at
}

func (s *Stream) handle(ctx context.Context, ev live.Event) error {
	switch ev.Kind {
	case live.Added:
		if s.streams.home.Arrivals.MayBeLate(ev.Post) {
			if err := s.sendJournal(ctx, ""); err != nil {
				return err
			}
		}
		if ev.Reason != "" {
			if arrives, err := s.edited(ctx, ev); !arrives {
				return err
			}
		}
		if s.client.Knows(ev.Post) {
			return nil
		}
		if b := &s.backlog; len(s.ready)+len(b.items) > 0 { // late posts are sent first
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
		// All existing positions become invalid before an Invalidated is published. So a valid
		// position is a later one: the client has been told to read again, or has read its
		// timeline, since then. It is not told again.
		return s.sendJournal(ctx, ev.Reason)
	case live.Resync:
		return s.inTurn(ctx, s.resync)
	}
	return nil
}

// verdictLasts is how long a verdict may be used. It bounds how long a stream can overlook a
// change that another process made.
const verdictLasts = 100 * time.Millisecond

// arrived sends the post of an Added event, if the viewer may see it.
func (s *Stream) arrived(ctx context.Context, ev live.Event) error {
	post, e, err := s.judge(ctx, ev)
	if err == nil && post != nil {
		s.add(post, e)
	}
	return err
}

// removed sends PostRemoved, unless the viewer may see the post again by now. If the client
// resumed while the post was hidden, changedItems left out its edit, so removed sends the edit.
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

// judge returns the post of an event, or nil if the viewer may not see it. The process reads the
// post once for all recipients of the message, after the message arrived and after the last
// change in this process that hid anything. If there are several recipients, judge also returns
// the event that they share.
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

// add sends PostAdded. e is the event that several users share, or nil.
func (s *Stream) add(p *ent.Post, e *sharedEvent) {
	before := s.newest
	s.took(p.ID)
	s.send(&PostAdded{PostEvent{Edge: s.client.Entry(s.viewer, p), Results: e.forAll(), shared: e}, before})
}

// took records that the client receives the post.
func (s *Stream) took(id int64) {
	s.client.Take(id)
	s.forgetGone(id)
	s.newest = max(s.newest, id)
}

// forgetGone makes remove send the removal of the post even if it was sent before.
func (s *Stream) forgetGone(id int64) {
	s.gone = slices.DeleteFunc(s.gone, func(gone int64) bool { return gone == id })
}

// remove sends PostRemoved, unless it was sent before. deleted says that the post was the viewer's
// own: an own post leaves the timeline only by deletion.
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
		e = nil // the other recipients are not told that the post was deleted
	}
	s.send(&PostRemoved{PostID: id, Position: s.position(), Deleted: deleted, Results: e.forAll()})
}

// resume sends what the client missed since the cursor.
func (s *Stream) resume(ctx context.Context, after paging.Cursor) error {
	s.newest = after.ID
	state, ok, err := s.streams.home.Clients.At(ctx, s.viewer, after)
	if err != nil {
		return err
	}
	if !ok {
		return s.startOver(ctx, tooMuch, TooManyPosts)
	}
	s.client = state
	return s.catchUp(ctx)
}

// catchUp sends what the client missed: the journal, then changes, then posts, oldest first. If it
// cannot know everything that the client missed, it sends Invalidated first.
func (s *Stream) catchUp(ctx context.Context) error { return s.catchUpAs(ctx, false) }

// namesMany reports whether the client state names so many posts that the stream must settle the
// inbox again to keep its cursors small.
func (s *Stream) namesMany() bool {
	named, _ := s.client.Named(1)
	return named > max(s.nameAt, 2*clientstate.MaxRecent)
}

// settle catches up although no event was lost: every change was sent, or its event is still to
// come. If Redis does not answer, cursors grow until the next try.
func (s *Stream) settle(ctx context.Context) error {
	named, _ := s.client.Named(1)
	s.nameAt = named + clientstate.MaxRecent
	return s.catchUpAs(ctx, true)
}

// catchUpAs implements catchUp and settle. noEventLost says that an event has come, or will come, for
// everything that happened to the timeline.
func (s *Stream) catchUpAs(ctx context.Context, noEventLost bool) error {
	s.backlog.check(s.streams)
	m, why, err := s.streams.home.Clients.MissedSince(ctx, s.viewer, &s.client, noEventLost)
	if err != nil || noEventLost && why == home.NoRedis {
		return err
	}
	whole := why == ""
	if _, settled := s.client.Settled(); !whole && settled {
		return s.startOver(ctx, mayHaveMissed, Cause(why)) // the client state cannot tell what the client misses
	}
	if !whole {
		m.Now = s.visit(ctx) // begins to build a missing inbox
		s.client.Position = m.Now
		s.backlog.check(s.streams)
		m.Arrived = s.streams.home.Arrivals.ArrivedID(ctx)
		var all bool
		if m.Posts, all, err = s.streams.home.Clients.Since(ctx, s.viewer, s.client.Low(), true); err != nil {
			return err
		}
		m.More = !all
	}
	switch {
	case m.More && noEventLost: // their events are still to come, or the subscription lags behind
		return nil
	case m.More:
		return s.startOver(ctx, tooMuch, TooManyPosts)
	}
	if !whole {
		// The client reads its timeline again. So it loses posts even if no removal was sent, and may get back
		// posts whose removal was sent.
		s.client.Retain(m.Posts)
		s.gone = nil
		s.invalidate(mayHaveMissed, Cause(why))
	}
	items, err := s.journaled(ctx, m.Changes, m.Now)
	if err != nil {
		return err
	}
	if whole && !noEventLost { // otherwise the client reads the page again, or was sent the edits
		edited, all, err := s.changedItems(ctx, m.Now)
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

// sendJournal sends the journal's changes since the client's position: late posts that the client
// does not have, and removals. If the changes are unknown, it tells the client to read again. A
// reason that is not empty replaces the default one.
func (s *Stream) sendJournal(ctx context.Context, reason string) error {
	changes, now, why := s.streams.home.Clients.Changes(ctx, s.viewer, s.client.Position)
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

// startOver tells the client to read again. The client state becomes the present timeline.
func (s *Stream) startOver(ctx context.Context, reason string, cause Cause) error {
	state, err := s.streams.home.Clients.Now(ctx, s.viewer)
	if err != nil {
		return err
	}
	s.client = state
	s.newest = max(s.newest, state.Newest())
	s.gone = nil
	s.invalidate(reason, cause)
	return nil
}

// invalidate sends Invalidated and counts it.
func (s *Stream) invalidate(reason string, cause Cause) {
	s.streams.invalidated[cause].Add(1)
	s.send(&Invalidated{Reason: reason, Position: s.position()})
}

// Reasons of an Invalidated that the stream itself causes.
const (
	tooMuch       = "more was posted than is replayed"
	mayHaveMissed = "events may have been missed"
)

// Cause says in the metric why a client was told to read again: a [home.Unknown] or one of the
// causes of this package.
type Cause string

// The causes of this package.
const (
	TooManyPosts Cause = "too_many_posts"   // the client missed more posts than a stream replays
	TooManyEdits Cause = "too_many_edits"   // the client missed more edits than a stream replays
	Changed      Cause = "timeline_changed" // the viewer's relations, mutes or HomeReplies changed while the stream was open
)

// The causes of a ConversationInvalidated, beside home.Forgotten.
const (
	RootChanged     Cause = "root_changed"     // the first post of the conversation was shown, hidden or deleted
	RelationChanged Cause = "relation_changed" // the viewer's relation to a participant may have changed
	NotRecorded     Cause = "not_recorded"     // nobody watched for a while, or Redis lost what was recorded
)

// causes are all causes.
var causes = []Cause{
	RootChanged, RelationChanged, NotRecorded, TooManyPosts, TooManyEdits, Changed, Cause(home.NoPosition), Cause(home.NoRedis), Cause(home.Rebuilt), Cause(home.Forgotten), Cause(home.OutOfOrder),
}

// position returns the cursor to resume after for a client that has received everything sent so far.
func (s *Stream) position() string { return s.client.Cursor(s.viewer, s.newest) }

// beat sends a heartbeat.
func (s *Stream) beat() {
	s.send(&Heartbeat{
		Position: s.position(), CompleteUpTo: ids.TimeOf(s.client.Low()), LateBy: int(s.streams.home.Arrivals.LateBy().Seconds()),
	})
}
