package stream

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/clientstate"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// backlog has the items that a stream has read and not yet sent.
type backlog struct {
	items []backlogItem
	known known // by the client when all are sent

	// The last check, and how many of the items it found to be true.
	checked int
	at      time.Time
	version int64 // of the Reader
	sent    int   // how many were sent since
}

// known is up to where a read found everything: the client's Low advances to low, and what
// comes at or below bound is found by how the inbox was settled, see clientstate.
type known struct {
	low, bound int64
	settled    clientstate.Settled
}

// backlogItem is one thing to send when the client takes it.
type backlogItem struct {
	id       int64
	deleted  bool              // the viewer has deleted it, see gone
	edited   bool              // it says something else than when the client got it
	gone     bool              // it has left the timeline; else it is in there, as
	post     *ent.Post         // it was at the last check
	position timeline.Position // the journal is known up to here when it is sent
}

// journaled returns what is true now of each post that the changes name. Each item
// carries the position before the next item's changes, so that only the last item
// carries the present position. A client that leaves before the end gets the rest
// when it resumes.
func (s *Stream) journaled(ctx context.Context, changes []timeline.Change, now timeline.Position) ([]backlogItem, error) {
	var ids []int64
	first, removed, deleted := map[int64]int64{}, map[int64]bool{}, map[int64]bool{}
	for i, c := range changes {
		if _, known := first[c.Post]; !known {
			ids, first[c.Post] = append(ids, c.Post), int64(i)
		}
		removed[c.Post] = removed[c.Post] || c.Removed
		deleted[c.Post] = deleted[c.Post] || c.Deleted
	}
	posts, err := s.visible(ctx, ids)
	if err != nil {
		return nil, err
	}
	var items []backlogItem
	for i, id := range ids {
		before := timeline.Position{Epoch: now.Epoch, Offset: s.client.Position.Offset + first[id]}
		left := removed[id] && !slices.Contains(s.gone, id)
		came := posts[i] != nil && (removed[id] || !s.client.Has(id))
		if n := len(items); n > 0 && (left || came) {
			items[n-1].position = before
		}
		if left {
			items = append(items, backlogItem{id: id, gone: true, deleted: deleted[id] && posts[i] == nil, position: before})
		}
		if came {
			items = append(items, backlogItem{id: id, post: posts[i], position: before})
		}
	}
	if n := len(items); n > 0 {
		items[n-1].position = now
	}
	return items, nil
}

// check records when the reading of the backlog's items begins.
func (b *backlog) check(of *Streams) { b.at, b.version = of.cfg.Now(), of.posts.Version() }

// queue replaces the backlog by the items, which were read since check. When all
// are sent, the client knows the journal up to now, and what is known.
func (s *Stream) queue(items []backlogItem, now timeline.Position, known known) {
	b := &s.backlog
	b.items, b.known = items, known
	s.removals = 0
	b.checked, b.sent = len(items), 0
	if len(items) == 0 {
		s.client.Position = now
		s.backlogSent()
	}
}

// sendNext sends the first item of the backlog, unless the client has the post by
// now.
func (s *Stream) sendNext(ctx context.Context) error {
	b := &s.backlog
	if b.checked == 0 || b.version != s.streams.posts.Version() || s.streams.cfg.Now().Sub(b.at) > verdictLasts {
		if err := s.recheckBacklog(ctx); err != nil || b.checked == 0 {
			return err
		}
	}
	next := b.items[0]
	b.items = b.items[1:]
	b.checked, b.sent = b.checked-1, b.sent+1
	s.client.Position = next.position
	if next.gone {
		s.remove(next.id, next.deleted, nil)
	} else if next.edited {
		s.update(next.post, nil)
	} else if !s.client.Has(next.id) {
		s.add(next.post, nil)
	}
	if len(b.items) == 0 {
		s.backlogSent()
	}
	return nil
}

func (s *Stream) backlogSent() {
	b := &s.backlog
	s.client.Advance(b.known.low)
	s.client.Settle(b.known.bound, b.known.settled)
	if named, _ := s.client.Named(1); b.known.bound > 0 && named <= clientstate.MaxRecent {
		s.nameAt = 0
	}
	b.items, b.known = nil, known{}
}

// recheckBacklog drops the items that were hidden since they were read. It checks
// the next items only, twice as many as were sent since the last check. A dropped
// item passes its journal position to the one before it.
func (s *Stream) recheckBacklog(ctx context.Context) error {
	b := &s.backlog
	n := min(len(b.items), max(2*b.sent, 2))
	s.backlog.check(s.streams)
	var ids []int64
	for _, item := range b.items[:n] {
		if !item.gone {
			ids = append(ids, item.id)
		}
	}
	posts, err := s.visible(ctx, ids)
	if err != nil {
		return err
	}
	var left []backlogItem
	for _, item := range b.items[:n] {
		if !item.gone {
			item.post, posts = posts[0], posts[1:]
		}
		switch {
		case item.gone || item.post != nil:
			left = append(left, item)
		case len(left) > 0:
			left[len(left)-1].position = item.position
		default:
			s.client.Position = item.position
		}
	}
	b.items = append(left, b.items[n:]...)
	b.checked, b.sent = len(left), 0
	if len(b.items) == 0 {
		s.backlogSent()
	}
	return nil
}

// visible returns those of the posts that the viewer may be shown in the timeline,
// in the order of the ids, nil for the others, with all that an event may show of them.
func (s *Stream) visible(ctx context.Context, ids []int64) ([]*ent.Post, error) {
	return s.streams.posts.Posts(ctx, visibility.Home, s.viewer.ID, ids, visibility.All)
}
