package home

import (
	"tideline/ent"
	"tideline/timeline"
)

// KeepUnread keeps the posts as the unread posts of a user, counted from the inbox.
func (h *Home) KeepUnread(user int64, inbox timeline.Coverage, posts []*ent.Post) {
	h.unread.keep(user, newUnreadPosts(user, unreadAnswer{}.by(inbox), posts))
}

// ForgetUnread has the number of a user counted anew.
func (h *Home) ForgetUnread(user int64) { h.unread.forget(user) }

// TakeTurns takes all turns of builders. No feed is built until they are given back.
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
