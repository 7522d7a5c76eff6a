package home

import "tideline/feed/unread"

// KeepUnread keeps unread posts of a user.
func (h *Home) KeepUnread(user int64, k unread.Kept) { h.unread.Keep(user, k) }

// ForgetUnread has the number of a user counted anew.
func (h *Home) ForgetUnread(user int64) { h.unread.Forget(user) }

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
