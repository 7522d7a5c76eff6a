package home

import "tideline/feed/unread"

// KeepUnread keeps unread posts of a user.
func (h *Home) KeepUnread(user int64, k unread.Kept) { h.unread.Keep(user, k) }
