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

// backlog holds the items that a stream has read and not yet sent.
type backlog struct {
	items []backlogItem
	known known // what the client has when all items are sent

	// The last check of the visibility of items.
	checked int       // how many of the first items it covers
	at      time.Time // when it began
	version int64     // version of the visibility.Reader at that time
	sent    int       // how many items were sent since
}

// known says how far a read was complete. The client's Low advances to low. settled detects posts
// that arrive later at or below bound, as clientstate describes.
type known struct {
	low, bound int64
	settled    clientstate.Settled
}

// backlogItem is one post to send as added, edited or removed.
type backlogItem struct {
	id       int64
	deleted  bool              // with gone: the viewer deleted it
	edited   bool              // its text may have changed since the client received it
	gone     bool              // it has left the timeline
	post     *ent.Post         // as of the last check; nil if gone
	position timeline.Position // up to here the client knows the journal once the item is sent
}

// journaled returns items that say whether each post that the changes name is in the timeline now.
// An item carries the position before the next item's changes, and only the last item carries now.
// So a client that leaves before the end gets the rest when it resumes.
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

// check records that a read of the items begins.
func (b *backlog) check(of *Streams) { b.at, b.version = of.cfg.Now(), of.posts.Version() }

// queue replaces the backlog with items that were read after check. When all are sent, the client
// knows the journal up to now, and the client state takes over known.
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

// sendNext takes the first item of the backlog and sends it, unless the client has the post already.
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

// recheckBacklog drops items that were hidden since they were read. It checks the next items only:
// twice as many as were sent since the last check, at least two. The item before a dropped item
// takes its journal position.
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

// visible returns the posts in the order of the ids, with all fields that an event may show. A post
// that the viewer may not see in the timeline is nil.
func (s *Stream) visible(ctx context.Context, ids []int64) ([]*ent.Post, error) {
	return s.streams.posts.Posts(ctx, visibility.Home, s.viewer.ID, ids, visibility.All)
}
