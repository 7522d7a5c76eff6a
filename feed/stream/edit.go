package stream

import (
	"cmp"
	"context"

	"tideline/ent"
	"tideline/feed/ids"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/timeline"
)

// edited handles an Added event with a reason: a change of a post that the client may have. Edits are for
// clients that asked for them: they get PostUpdated, or PostRemoved if the viewer mutes a word of the new
// text. All clients get PostRemoved for a reply or a repost that is hidden because its root or original
// is, even if the client state does not name the post or its removal was sent before: the client may have
// read it on a page while it was shown for a moment. arrives reports whether the post must be handled as
// one that has just arrived.
func (s *Stream) edited(ctx context.Context, ev live.Event) (arrives bool, err error) {
	edit := ev.Reason == live.Edited
	if edit && !s.client.MayHave(ev.Post) {
		return true, nil
	}
	if edit && !s.updates {
		return false, nil
	}
	if !edit {
		s.forgetGone(ev.Post)
	}
	post, e, err := s.judge(ctx, ev)
	switch {
	case err != nil:
		return false, err
	case post == nil: // other recipients of the event may still see the post
		s.remove(ev.Post, ev.Author == s.viewer.ID, nil)
	case !s.client.MayHave(ev.Post):
		return true, nil
	case s.updates:
		s.update(post, e)
	case !s.client.Has(ev.Post): // the client may have been told that it is gone
		s.remove(ev.Post, false, nil)
		s.add(post, nil)
	}
	return false, nil
}

// update sends PostUpdated. e is the event that several users share, or nil.
func (s *Stream) update(p *ent.Post, e *sharedEvent) {
	s.forgetGone(p.ID)
	s.send(&PostUpdated{PostEvent{Edge: s.client.Entry(s.viewer, p), Results: e.forUpdates(), shared: e}})
}

// maxEdits is how many edited posts a stream sends when it catches up. If there are more, the client
// has to read its timeline again.
const maxEdits = 100

// changedItems returns an item for each post that the client may have and that was edited since the
// time of Low, or whose root or original was shown, hidden or deleted since then. The item says that the
// post is gone if the viewer may no longer be shown it, because of a muted word in the new text or because
// of its root or original. all is false if there are more than maxEdits. An edit shortly before the
// client's cursor may be sent a second time.
func (s *Stream) changedItems(ctx context.Context, now timeline.Position) (items []backlogItem, all bool, err error) {
	// Every edit up to the time of low has reached the client: see ArrivedID. A client that read an
	// empty page has no low. No post of such a client was edited before its oldest post was made.
	since := cmp.Or(s.client.Low(), s.client.Oldest())
	if since == 0 {
		return nil, true, nil
	}
	list, err := s.streams.posts.Unchecked.ChangedSince(ctx, s.viewer.ID, ids.TimeOf(since), maxEdits+1)
	if err != nil || len(list) > maxEdits {
		return nil, false, err
	}
	posts, err := s.visible(ctx, list)
	if err != nil {
		return nil, false, err
	}
	// A removal was or will be sent for a post that is hidden for another reason than a muted word, or
	// the post never was in the timeline.
	kept, err := s.streams.posts.Posts(ctx, visibility.Inbox, s.viewer.ID, list, 0)
	if err != nil {
		return nil, false, err
	}
	for i, id := range list {
		depends := kept[i] != nil && visibility.DependsOnOthers(kept[i])
		shown, mayHave := posts[i] != nil, s.client.MayHave(id)
		if !shown && depends {
			s.forgetGone(id)
		}
		if !shown && (depends || kept[i] != nil && s.updates && mayHave) {
			items = append(items, backlogItem{id: id, gone: true, position: now})
		}
		switch {
		case !shown || !mayHave: // if it is shown, the client misses it
		case s.updates:
			items = append(items, backlogItem{id: id, edited: true, post: posts[i], position: now})
		case depends && !s.client.Has(id): // as in edited
			items = append(items, backlogItem{id: id, gone: true, position: now}, backlogItem{id: id, post: posts[i], position: now})
		}
	}
	return items, true, nil
}
