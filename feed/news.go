package feed

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/timeline"
)

// backlogItem is one thing to tell the client when it takes it, after another look.
type backlogItem struct {
	id   int64
	gone bool              // it has left the timeline; else it is in there, as
	post *ent.Post         // it was when last looked at
	at   timeline.Position // notes up to here are known when it is told
}

// news is of each post that the notes name what is true of it now. Each says that
// the notes before the next one's are known, so that only the last says it of all:
// a client that leaves in between is told the rest when it resumes.
func (s *Stream) news(ctx context.Context, noted []timeline.Change, now timeline.Position) ([]backlogItem, error) {
	var ids []int64
	first, removed := map[int64]int64{}, map[int64]bool{}
	for i, n := range noted {
		if _, known := first[n.Post]; !known {
			ids, first[n.Post] = append(ids, n.Post), int64(i)
		}
		removed[n.Post] = removed[n.Post] || n.Removed
	}
	posts, err := s.visible(ctx, ids)
	if err != nil {
		return nil, err
	}
	var untold []backlogItem
	for _, id := range ids {
		before := timeline.Position{Epoch: now.Epoch, Offset: s.at.Offset + first[id]}
		left := removed[id] && !slices.Contains(s.gone, id)
		came := posts[id] != nil && (removed[id] || !s.has(id))
		if n := len(untold); n > 0 && (left || came) {
			untold[n-1].at = before
		}
		if left {
			untold = append(untold, backlogItem{id: id, gone: true, at: before})
		}
		if came {
			untold = append(untold, backlogItem{id: id, post: posts[id], at: before})
		}
	}
	if n := len(untold); n > 0 {
		untold[n-1].at = now
	}
	return untold, nil
}

// look notes when the reading begins of what is to be told.
func (s *Stream) look() { s.looked, s.asked = s.feed.now(), s.feed.visibilityVersion.Load() }

// tell has the client told the news, which were read since look. When that is done,
// notes up to now are known, and low rises.
func (s *Stream) tell(untold []backlogItem, now timeline.Position, risen int64) {
	s.backlog, s.risen = untold, risen
	s.sure, s.since = len(untold), 0
	if len(untold) == 0 {
		s.at = now
		s.allTold()
	}
}

// tellNext sends the first of the news, unless that is known by now.
func (s *Stream) tellNext(ctx context.Context) error {
	if s.sure == 0 || s.asked != s.feed.visibilityVersion.Load() || s.feed.now().Sub(s.looked) > verdictLasts {
		if err := s.recheckBacklog(ctx); err != nil || s.sure == 0 {
			return err
		}
	}
	n := s.backlog[0]
	s.backlog = s.backlog[1:]
	s.sure, s.since = s.sure-1, s.since+1
	s.at = n.at
	if n.gone {
		s.remove(n.id)
	} else if !s.has(n.id) {
		s.add(n.post)
	}
	if len(s.backlog) == 0 {
		s.allTold()
	}
	return nil
}

func (s *Stream) allTold() {
	s.advance(s.risen)
	s.backlog, s.risen = nil, 0
}

// recheckBacklog leaves out of the news what has been hidden since it was read: a
// client takes its time to be told it all. It looks at the next ones only, as
// many again as it came to tell since the last time, twice. What is left out the
// client knows all about when it knows of what comes before.
func (s *Stream) recheckBacklog(ctx context.Context) error {
	n := min(len(s.backlog), max(2*s.since, 2))
	s.look()
	var ids []int64
	for _, one := range s.backlog[:n] {
		if !one.gone {
			ids = append(ids, one.id)
		}
	}
	posts, err := s.visible(ctx, ids)
	if err != nil {
		return err
	}
	var still []backlogItem
	for _, one := range s.backlog[:n] {
		one.post = posts[one.id]
		switch {
		case one.gone || one.post != nil:
			still = append(still, one)
		case len(still) > 0:
			still[len(still)-1].at = one.at
		default:
			s.at = one.at
		}
	}
	s.backlog = append(still, s.backlog[n:]...)
	s.sure, s.since = len(still), 0
	if len(s.backlog) == 0 {
		s.allTold()
	}
	return nil
}

// visible is those of the posts that the viewer may be shown in the timeline.
func (s *Stream) visible(ctx context.Context, ids []int64) (map[int64]*ent.Post, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.feed.posts(s.viewer.ID).Where(s.feed.among(post.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	if rows, err = shown(HomeTimeline, s.viewer.ID, rows); err != nil {
		return nil, err
	}
	posts := make(map[int64]*ent.Post, len(rows))
	for _, p := range rows {
		posts[p.ID] = p
	}
	return posts, nil
}
