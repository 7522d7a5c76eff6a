package home

import (
	"tideline/ent"
	"tideline/timeline"
)

// KeepUnread keeps the posts as the user's unread posts, counted from the inbox.
func (h *Home) KeepUnread(user int64, inbox timeline.Coverage, posts []*ent.Post) {
	h.unread.keep(user, newUnreadPosts(user, unreadAnswer{}.by(inbox), posts))
}

// ForgetUnread forgets the user's unread posts, so that the next count is made anew.
func (h *Home) ForgetUnread(user int64) { h.unread.forget(user) }

// TakeTurns takes all turns of builders. No feed is built until giveBack is called.
func (h *Home) TakeTurns() (giveBack func()) {
	for range cap(h.builder.turns) {
		h.builder.turns <- struct{}{}
	}
	return func() {
		for range cap(h.builder.turns) {
			<-h.builder.turns
		}
	}
}
