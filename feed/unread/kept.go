package unread

import (
	"slices"

	"tideline/ent"
	"tideline/timeline"
)

// Kept is what was counted: the unread posts of an inbox, newest first, the viewer's own
// included. The zero Kept is of nobody.
type Kept struct {
	position timeline.Position // of the journal, before the posts were read
	ids      []int64
	own      []int64 // those that the viewer wrote, which do not count
}

// Of returns what was kept of the user's posts above the marker.
func (c *Counts) Of(user, marker int64) (Kept, bool) {
	k, ok := c.kept.Get(user)
	k.ids, k.own = downTo(k.ids, marker+1), downTo(k.own, marker+1)
	return k, ok
}

// Counted is what a timeline had of unread posts, newest first, when the viewer might be shown
// all of them. The position is from before they were read.
func Counted(viewer int64, position timeline.Position, posts []*ent.Post) Kept {
	return Kept{position: position}.With(viewer, posts, len(posts))
}

// Keep keeps the unread posts of a user. It keeps nothing of an inbox without a position.
func (c *Counts) Keep(user int64, k Kept) {
	if k.position.Epoch != 0 {
		c.kept.Add(user, k)
	}
}

// checkEach is how many numbers that were kept are told for each that is counted all the same.
const checkEach = 1000

// CheckDue reports, for one in a thousand numbers, that it is to be compared with a count.
func (c *Counts) CheckDue() bool { return c.told.Add(1)%checkEach == 0 }

// Forget keeps nothing of the user.
func (c *Counts) Forget(user int64) { c.kept.Remove(user) }

// Count is the number of unread posts.
func (k Kept) Count() int { return len(k.ids) - len(k.own) }

// Len is the number of posts, the viewer's own included.
func (k Kept) Len() int { return len(k.ids) }

// Span returns the ids of the oldest and the newest of the posts, 0 when there are none.
func (k Kept) Span() (oldest, newest int64) {
	if len(k.ids) == 0 {
		return 0, 0
	}
	return k.ids[len(k.ids)-1], k.ids[0]
}

// Grown reports whether the inbox still has these posts, but for the oldest, which it has
// forgotten, and those that came behind the newest. It was looked at for the span of the
// posts, at the position.
func (k Kept) Grown(position timeline.Position, g timeline.Growth) (Kept, bool) {
	if position != k.position || g.State != timeline.Ready || g.Held > len(k.ids) {
		return Kept{}, false
	}
	k.ids = k.ids[:g.Held]
	if g.Held == 0 {
		return Kept{position: position}, true
	}
	oldest, _ := k.Span()
	k.own = downTo(k.own, oldest)
	if oldest != g.Oldest {
		return Kept{}, false
	}
	return k, true
}

// With is the posts with newer ones before them, newest first, at most so many.
func (k Kept) With(viewer int64, newer []*ent.Post, most int) Kept {
	ids, own := make([]int64, 0, len(newer)+len(k.ids)), []int64(nil)
	for _, p := range newer {
		ids = append(ids, p.ID)
		if p.AuthorID == viewer {
			own = append(own, p.ID)
		}
	}
	k.ids, k.own = append(ids, k.ids...), append(own, k.own...)
	k.ids = k.ids[:min(len(k.ids), most)]
	oldest, _ := k.Span()
	k.own = downTo(k.own, oldest)
	return k
}

// downTo is the beginning of the ids, which descend, down to the lowest.
func downTo(ids []int64, lowest int64) []int64 {
	n, _ := slices.BinarySearchFunc(ids, lowest, func(id, lowest int64) int {
		if id >= lowest {
			return -1
		}
		return 1
	})
	return ids[:n:n]
}
