package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/live"
	"tideline/timeline"
)

// rememberGone is how many of the posts that it sent as removed a subscription
// remembers, so as not to say it twice.
const rememberGone = 64

// stayActive is how often an open subscription makes its user active.
const stayActive = time.Hour

// stream is one subscription on its way to the client.
type stream struct {
	feed   *Feed
	viewer Viewer
	out    chan Event
	// holding is what the client holds when it has got all that was sent.
	holding
	newest int64   // newest post sent or known to the client
	gone   []int64 // the last ones sent as removed
}

// run goes on until ctx or the session ends (nil) or something fails. It closes
// the subscription.
func (s *stream) run(ctx context.Context, sub *live.Subscription, after *cursor, heartbeat time.Duration) error {
	defer func() { sub.Close() }()
	if after != nil {
		if err := s.resume(ctx, *after); err != nil {
			return err
		}
	} else if n := len(s.recent); n > 0 {
		s.newest = s.recent[n-1]
	}
	active := time.NewTicker(stayActive)
	defer active.Stop()
	var beats <-chan time.Time
	if heartbeat > 0 {
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		beats = ticker.C
	}
	for {
		// What arrived before a moment when nothing waits has been told.
		drained := len(sub.Events()) == 0
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-active.C:
			s.feed.visit(ctx, s.viewer.ID)
		case <-beats:
			if drained {
				s.rise(settledBefore(s.feed.now()))
			}
			err = s.send(ctx, &Heartbeat{Position: s.position()})
		case ev, ok := <-sub.Events():
			if drained {
				s.rise(settledBefore(s.feed.now()))
			}
			if !ok {
				sub, err = s.again(ctx, sub)
				break
			}
			if ev.Kind == live.MarkerMoved && heartbeat > 0 {
				err = s.send(ctx, &Heartbeat{Position: s.position()})
				break
			}
			err = s.handle(ctx, ev)
		}
		if errors.Is(err, errStreamEnds) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// again is what a subscription that fell behind goes on with: a new one, and
// what was missed.
func (s *stream) again(ctx context.Context, ended *live.Subscription) (*live.Subscription, error) {
	if err := ended.Err(); !errors.Is(err, live.ErrLagged) {
		return ended, err
	}
	sub, err := s.feed.cfg.Hub.Subscribe(ctx, s.viewer.ID)
	if err != nil {
		return ended, fmt.Errorf("subscribe: %w", err)
	}
	// The end of the session may have been among what was missed.
	if err := s.stillSignedIn(ctx); err != nil {
		return sub, err
	}
	return sub, s.catchUp(ctx)
}

func (s *stream) handle(ctx context.Context, ev live.Event) error {
	switch ev.Kind {
	case live.Added:
		switch {
		case s.has(ev.Post):
			return nil
		case ev.Post > s.low:
			return s.arrived(ctx, ev)
		}
		return s.late(ctx)
	case live.Removed:
		return s.removed(ctx, ev.Post)
	case live.Invalidated:
		return s.startOver(ctx, ev.Reason)
	case live.Resync:
		if err := s.stillSignedIn(ctx); err != nil {
			return err
		}
		return s.catchUp(ctx)
	case live.SessionEnded:
		if ev.Session == s.viewer.Session {
			return errStreamEnds
		}
	}
	return nil
}

// stillSignedIn ends the stream of a session that ended unheard.
func (s *stream) stillSignedIn(ctx context.Context) error {
	ended, err := s.feed.EndedSessions(ctx, []int64{s.viewer.Session})
	if err == nil && s.viewer.Session != 0 && len(ended) > 0 {
		return errStreamEnds
	}
	return err
}

// verdict is a post and who may be shown it in the timeline.
type verdict struct {
	post  *ent.Post // nil: there is none
	sees  map[int64]bool
	asked int64 // how often something had been hidden when the reading began
}

// verdictLasts bounds by how much a change in another process can be overlooked:
// who sends an event later than this looks again.
const verdictLasts = 100 * time.Millisecond

// arrived sends a post that was told of, if it may be shown. It is read, and
// checked for all whom the message was for, once in the process, after the
// message arrived and after the last change here that hid anything.
func (s *stream) arrived(ctx context.Context, ev live.Event) error {
	f := s.feed
	holds := func(v verdict) bool { return v.asked == f.hidden.Load() }
	v, err := live.Share(ev.Batch, verdictLasts, holds, func(users []int64) (verdict, error) {
		if users == nil {
			users = []int64{s.viewer.ID}
		}
		return f.judge(ctx, ev.Post, users)
	})
	if err != nil || v.post == nil || !v.sees[s.viewer.ID] {
		return err
	}
	return s.add(ctx, v.post)
}

// judge reads a post with its author, and who of the users may be shown it in
// the timeline. It costs three queries, and one more per 3,000 users.
func (f *Feed) judge(ctx context.Context, id int64, users []int64) (v verdict, err error) {
	v.asked = f.hidden.Load()
	rows, err := f.db.Post.Query().Where(post.ID(id)).WithAuthor().All(ctx)
	if err != nil || len(rows) == 0 {
		return v, wrap("read post", err)
	}
	v.post, v.sees = rows[0], make(map[int64]bool, len(users))
	for chunk := range slices.Chunk(users, 3000) {
		// Who may be shown it follows the author, or is the author.
		followers, err := f.Among(ctx, v.post.AuthorID, v.post, chunk)
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
func (s *stream) removed(ctx context.Context, id int64) error {
	rows, err := s.feed.posts(s.viewer.ID).Where(post.ID(id)).All(ctx)
	if err != nil {
		return fmt.Errorf("read post: %w", err)
	}
	rows, err = shown(doorTimeline, s.viewer.ID, rows)
	if err != nil || len(rows) > 0 {
		return err
	}
	return s.remove(ctx, id)
}

func (s *stream) add(ctx context.Context, p *ent.Post) error {
	s.take(p.ID)
	s.gone = slices.DeleteFunc(s.gone, func(gone int64) bool { return gone == p.ID })
	s.newest = max(s.newest, p.ID)
	return s.send(ctx, &PostAdded{Edge: s.feed.entry(s.viewer, p, s.holding)})
}

func (s *stream) remove(ctx context.Context, id int64) error {
	if slices.Contains(s.gone, id) {
		return nil
	}
	s.drop(id)
	if len(s.gone) == rememberGone {
		s.gone = slices.Delete(s.gone, 0, 1)
	}
	s.gone = append(s.gone, id)
	return s.send(ctx, &PostRemoved{PostID: id, Position: s.position()})
}

// resume sends what came since the cursor.
func (s *stream) resume(ctx context.Context, after cursor) error {
	s.newest = after.id
	held, ok := after.held()
	if !ok {
		// The cursor tells a place and no more: what lies above it is missed, and
		// what else is nobody knows.
		held = holding{low: after.id}
	}
	s.holding = held
	return s.catchUp(ctx)
}

// catchUp sends what came since, oldest first, after Invalidated when that may
// not be all.
func (s *stream) catchUp(ctx context.Context) error {
	noted, whole := s.changes(ctx)
	if !whole { // Redis may have forgotten the user
		s.at = s.feed.visit(ctx, s.viewer.ID)
	}
	began := s.feed.now()
	missed, err := s.feed.fill(ctx, doorTimeline, s.viewer.ID, s.feed.cfg.InboxCap,
		span{low: s.low, ascending: true}, s.feed.cached(s.feed.inbox(s.viewer.ID)))
	if err != nil {
		return err
	}
	if len(missed) == s.feed.cfg.InboxCap {
		return s.startOver(ctx, "more was posted than is replayed")
	}
	if !whole {
		err = s.send(ctx, &Invalidated{Reason: "events may have been missed", Position: s.position()})
	} else {
		err = s.sendChanges(ctx, noted)
	}
	if err != nil {
		return err
	}
	for _, p := range missed {
		if s.has(p.ID) {
			continue
		}
		if err := s.add(ctx, p); err != nil {
			return err
		}
	}
	s.rise(settledBefore(began))
	return nil
}

// late sends what the journal noted: a post that came late, if it is not known.
func (s *stream) late(ctx context.Context) error {
	noted, whole := s.changes(ctx)
	if !whole {
		return s.startOver(ctx, "events may have been missed")
	}
	return s.sendChanges(ctx, noted)
}

// changes are the notes in the journal since the client's position, which moves
// there. Not whole: nobody knows what they were.
func (s *stream) changes(ctx context.Context) (noted []timeline.Change, whole bool) {
	noted, now, whole, err := s.feed.tl.Changes(ctx, s.viewer.ID, s.at)
	if err != nil && ctx.Err() == nil {
		// A client that cannot be told what changed is told that much.
		s.feed.log.WarnContext(ctx, "journal not read", "viewer", s.viewer.ID, "error", err)
	}
	s.at = now
	return noted, whole
}

// sendChanges sends of each post that the notes name what is true of it now.
func (s *stream) sendChanges(ctx context.Context, noted []timeline.Change) error {
	if len(noted) == 0 {
		return nil
	}
	var ids []int64
	removed := map[int64]bool{}
	for _, n := range noted {
		if _, known := removed[n.Post]; !known {
			ids = append(ids, n.Post)
		}
		removed[n.Post] = removed[n.Post] || n.Removed
	}
	rows, err := s.feed.posts(s.viewer.ID).Where(post.IDIn(ids...)).All(ctx)
	if err != nil {
		return fmt.Errorf("read posts: %w", err)
	}
	if rows, err = shown(doorTimeline, s.viewer.ID, rows); err != nil {
		return err
	}
	for i, p := range inOrder(ids, rows, func(p *ent.Post) int64 { return p.ID }) {
		if removed[ids[i]] {
			if err := s.remove(ctx, ids[i]); err != nil {
				return err
			}
		}
		if p != nil && !s.has(p.ID) {
			if err := s.add(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// startOver tells the client to read again, and goes on from what it will read.
func (s *stream) startOver(ctx context.Context, reason string) error {
	at := s.feed.visit(ctx, s.viewer.ID)
	held, err := s.feed.holdingOf(ctx, s.viewer, at, nil, true)
	if err != nil {
		return err
	}
	s.holding = held
	if n := len(held.recent); n > 0 {
		s.newest = max(s.newest, held.recent[n-1])
	}
	return s.send(ctx, &Invalidated{Reason: reason, Position: s.position()})
}

// position is the cursor that the client resumes after when it has got what was
// sent so far.
func (s *stream) position() string { return s.cursor(s.viewer, s.newest) }

func (s *stream) send(ctx context.Context, ev Event) error {
	select {
	case s.out <- ev:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
