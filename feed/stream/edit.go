package stream

import (
	"cmp"
	"context"
	"slices"

	"tideline/ent"
	"tideline/feed/ids"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// edited sends the new text of a post to a client that asked for edits. A viewer who mutes a
// word of it is told that the post is gone.
func (s *Stream) edited(ctx context.Context, ev live.Event) error {
	if !s.updates {
		return nil
	}
	post, e, err := s.judge(ctx, ev)
	switch {
	case err != nil:
		return err
	case post == nil: // to others who share the event the post may be there
		s.remove(ev.Post, ev.Author == s.viewer.ID, nil)
	default:
		s.update(post, e)
	}
	return nil
}

// update sends what a post says now, which the event brings to several streams unless it is
// nil.
func (s *Stream) update(p *ent.Post, e *sharedEvent) {
	s.gone = slices.DeleteFunc(s.gone, func(gone int64) bool { return gone == p.ID })
	s.send(&PostUpdated{Edge: s.client.Entry(s.viewer, p), sharedEvent: e})
}

// maxEdits is how many edited posts are told when a stream catches up. The client of one with
// more reads its timeline again.
const maxEdits = 100

// editedItems returns what posts that the client may have, and that were edited since, say
// now, or that they are gone for who mutes a word of that. All is false when there are more
// than maxEdits. An edit that came right before the client's cursor is told once more.
func (s *Stream) editedItems(ctx context.Context, now timeline.Position) (items []backlogItem, all bool, err error) {
	// Everything told up to low, edits included, had reached the client: see ArrivedID. A client that
	// has read an empty page has no low: its posts were not edited before the oldest was made.
	since := cmp.Or(s.client.Low(), s.client.Oldest())
	if since == 0 || !s.updates {
		return nil, true, nil
	}
	list, err := s.streams.posts.EditedSince(ctx, s.viewer.ID, ids.TimeOf(since), maxEdits+1)
	if err != nil || len(list) > maxEdits {
		return nil, false, err
	}
	list = slices.DeleteFunc(list, func(id int64) bool { return !s.client.MayHave(id) })
	posts, err := s.visible(ctx, list)
	if err != nil {
		return nil, false, err
	}
	// A post that is hidden by anything but a muted word was told as removed, will be, or was never there.
	kept, err := s.streams.posts.Posts(ctx, visibility.Inbox, s.viewer.ID, list, 0)
	if err != nil {
		return nil, false, err
	}
	for i, id := range list {
		if posts[i] != nil || kept[i] != nil {
			items = append(items, backlogItem{id: id, edited: posts[i] != nil, gone: posts[i] == nil, post: posts[i], position: now})
		}
	}
	return items, true, nil
}
