package home

import (
	"cmp"
	"slices"

	"tideline/ent"
	"tideline/timeline"
)

// unreadPosts is what was counted: the unread posts of a timeline that the viewer may be shown,
// newest first, the viewer's own included. The zero unreadPosts is of nobody.
type unreadPosts struct {
	by  unreadBasis
	ids []int64
	own []int64 // those that the viewer wrote, which do not count
}

// unreadBasis is what a count was made by. Another count by the same says the same of each post that
// was counted.
type unreadBasis struct {
	Epoch, Generation int64 // of the inbox, before the posts were read
	Words             mutedWords
}

// by is the basis of a count that reads posts of an inbox after the answer.
func (a unreadAnswer) by(inbox timeline.Coverage) unreadBasis {
	return unreadBasis{Epoch: inbox.Epoch, Generation: inbox.Generation, Words: a.Words}
}

// of returns what was kept of the user's posts above the marker, if that was counted by the
// same basis; else what has no posts yet.
func (c *unreadCounts) of(user, marker int64, by unreadBasis) (unreadPosts, bool) {
	k, ok := c.kept.Get(user)
	if !ok || k.by != by {
		return unreadPosts{by: by}, false
	}
	k.ids, k.own = downTo(k.ids, marker+1), downTo(k.own, marker+1)
	return k, true
}

// has reports whether anything is kept of the user.
func (c *unreadCounts) has(user int64) bool { return c.kept.Has(user) }

// newUnreadPosts is what a timeline had of unread posts, newest first, when the viewer might be shown
// all of them.
func newUnreadPosts(viewer int64, by unreadBasis, posts []*ent.Post) unreadPosts {
	k := unreadPosts{by: by, ids: make([]int64, 0, len(posts))}
	for _, p := range posts {
		k.ids = append(k.ids, p.ID)
		if p.AuthorID == viewer {
			k.own = append(k.own, p.ID)
		}
	}
	return k
}

// keep keeps the unread posts of a user, and forgets those of users who did not ask for long
// where it has too many. It keeps nothing of an inbox without an epoch.
func (c *unreadCounts) keep(user int64, k unreadPosts) {
	if k.by.Epoch != 0 {
		c.kept.Put(user, k, keptOverhead+8*(len(k.ids)+len(k.own)))
	}
}

// checkEach is how many numbers that were kept are told for each that is counted all the same.
const checkEach = 1000

// checkDue reports, for one in a thousand numbers, that it is to be compared with a count.
func (c *unreadCounts) checkDue() bool { return c.told.Add(1)%checkEach == 0 }

// forget keeps nothing of the user.
func (c *unreadCounts) forget(user int64) { c.kept.Remove(user) }

// count is the number of unread posts.
func (k unreadPosts) count() int { return len(k.ids) - len(k.own) }

// len is the number of posts, the viewer's own included.
func (k unreadPosts) len() int { return len(k.ids) }

// lacks returns those of the ids, which descend, that are not among the posts.
func (k unreadPosts) lacks(ids []int64) (lacking []int64) {
	have := k.ids
	for _, id := range ids {
		if have = have[len(downTo(have, id+1)):]; len(have) == 0 || have[0] != id {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// with is those of the posts that are among the ids, which descend, and the posts that were
// read of what it lacks: nil are those that the viewer may not be shown.
func (k unreadPosts) with(viewer int64, ids []int64, read []*ent.Post) unreadPosts {
	now, lacking := unreadPosts{by: k.by, ids: make([]int64, 0, len(ids))}, k.lacks(ids)
	for _, id := range ids {
		_, own := slices.BinarySearchFunc(k.own, id, descending)
		if len(lacking) > 0 && lacking[0] == id {
			p := read[0]
			lacking, read = lacking[1:], read[1:]
			if p == nil {
				continue
			}
			own = p.AuthorID == viewer
		}
		now.ids = append(now.ids, id)
		if own {
			now.own = append(now.own, id)
		}
	}
	return now
}

// descending compares ids that descend.
func descending(a, b int64) int { return cmp.Compare(b, a) }

// downTo is the beginning of the ids, which descend, down to the lowest.
func downTo(ids []int64, lowest int64) []int64 {
	n, _ := slices.BinarySearchFunc(ids, lowest-1, descending)
	return ids[:n:n]
}
