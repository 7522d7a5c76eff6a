package home

import (
	"cmp"
	"slices"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// unreadPosts holds the unread posts of a timeline that were counted: those that the viewer may
// see, newest first, including the viewer's own.
type unreadPosts struct {
	by  unreadBasis
	ids []int64
	own []int64 // the posts that the viewer wrote, which do not count
	// dependent are replies and reposts. They count, but are not kept: see keep.
	dependent []int64
}

// unreadBasis records the inputs of a count. Two counts with equal bases agree on every post that
// both counted.
type unreadBasis struct {
	Epoch, Generation int64 // of the inbox, before the posts were read
	Words             mutedWords
}

// by returns the basis of a count that reads posts of an inbox after the answer.
func (a unreadAnswer) by(inbox timeline.Coverage) unreadBasis {
	return unreadBasis{Epoch: inbox.Epoch, Generation: inbox.Generation, Words: a.Words}
}

// of returns the kept posts of the user above the marker, if they were counted on the same basis.
// Otherwise it returns false, and unreadPosts on that basis without posts.
func (u *Unread) of(user, marker int64, by unreadBasis) (unreadPosts, bool) {
	k, ok := u.kept.Get(user)
	if !ok || k.by != by {
		return unreadPosts{by: by}, false
	}
	k.ids, k.own = downTo(k.ids, marker+1), downTo(k.own, marker+1)
	return k, true
}

// has reports whether anything is kept of the user.
func (u *Unread) has(user int64) bool { return u.kept.Has(user) }

// newUnreadPosts returns unreadPosts with the given posts, newest first, all of which the viewer
// may see.
func newUnreadPosts(viewer int64, by unreadBasis, posts []*ent.Post) unreadPosts {
	k := unreadPosts{by: by, ids: make([]int64, 0, len(posts))}
	for _, p := range posts {
		k.ids = append(k.ids, p.ID)
		if p.AuthorID == viewer {
			k.own = append(k.own, p.ID)
		}
		if visibility.DependsOnOthers(p) {
			k.dependent = append(k.dependent, p.ID)
		}
	}
	return k
}

// keep stores the unread posts of a user. If the memory is full, it drops the users who asked
// least recently. It stores nothing for an inbox without an epoch. It leaves out replies and
// reposts, which other posts can hide without any change to the inbox: they are read each time.
func (u *Unread) keep(user int64, k unreadPosts) {
	if k.by.Epoch != 0 {
		k.ids, k.own, k.dependent = rows.Without(k.ids, k.dependent), rows.Without(k.own, k.dependent), nil
		u.kept.Put(user, k, keptOverhead+8*(len(k.ids)+len(k.own)))
	}
}

// checkEach is how many kept numbers are returned for each one that is counted anyway.
const checkEach = 1000

// checkDue reports whether a kept number is to be compared with a count: one in a thousand is.
func (u *Unread) checkDue() bool { return u.told.Add(1)%checkEach == 0 }

// forget removes the posts of the user.
func (u *Unread) forget(user int64) { u.kept.Remove(user) }

// count returns the number of unread posts.
func (k unreadPosts) count() int { return len(k.ids) - len(k.own) }

// len returns the number of posts, including the viewer's own.
func (k unreadPosts) len() int { return len(k.ids) }

// lacks returns the ids that are not among the posts. The ids descend.
func (k unreadPosts) lacks(ids []int64) (lacking []int64) {
	have := k.ids
	for _, id := range ids {
		if have = have[len(downTo(have, id+1)):]; len(have) == 0 || have[0] != id {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// with returns the posts whose ids are among ids, which descend: kept posts, and the posts in
// read. read has an entry for each id that lacks returns, nil if the viewer may not see the post.
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
			if visibility.DependsOnOthers(p) {
				now.dependent = append(now.dependent, id)
			}
		}
		now.ids = append(now.ids, id)
		if own {
			now.own = append(now.own, id)
		}
	}
	return now
}

// descending compares ids for descending order.
func descending(a, b int64) int { return cmp.Compare(b, a) }

// downTo returns the beginning of the ids, which descend, down to lowest.
func downTo(ids []int64, lowest int64) []int64 {
	n, _ := slices.BinarySearchFunc(ids, lowest-1, descending)
	return ids[:n:n]
}
