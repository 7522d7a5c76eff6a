package home

import (
	"tideline/ent"
	"tideline/timeline"
)

// Keep keeps the posts as the user's unread posts, counted from the inbox.
func (u *Unread) Keep(user int64, inbox timeline.Coverage, posts []*ent.Post) {
	u.keep(user, newUnreadPosts(user, unreadAnswer{}.by(inbox), posts))
}

// Forget forgets the user's unread posts, so that the next count is made anew.
func (u *Unread) Forget(user int64) { u.forget(user) }

// TakeTurns takes all turns of builders. No feed is built until giveBack is called.
func (rd *Reader) TakeTurns() (giveBack func()) {
	for range cap(rd.builder.turns) {
		rd.builder.turns <- struct{}{}
	}
	return func() {
		for range cap(rd.builder.turns) {
			<-rd.builder.turns
		}
	}
}
