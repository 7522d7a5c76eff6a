package oracle

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
)

// model is the expected state according to the rules. Users and posts have numbers.
type model struct {
	users    []person
	posts    []note
	follows  relation
	requests relation
	blocks   relation
	mutes    relation
	likes    relation        // user, post
	words    map[[2]int]bool // user, muted word of texts
}

type person struct {
	id       int64
	approves bool  // followers must be approved
	hidden   bool  // suspended or deleted: nobody sees the user, and the user does nothing
	leaving  bool  // deleted, but counts of others may still include the user
	gone     bool  // deleted, also from the counts of others
	marker   int64 // newest post read
}

type note struct {
	id         int64
	author     int
	visibility schema.Visibility
	deleted    bool
	hidden     bool // by a moderator
	word       int  // index of the word of texts
}

// texts are the texts of posts. The first one has no mutable word.
var texts = []string{"hello", "My CAT sleeps", "这里有猫咪"}

// mutable are words of the texts; the first text has none.
var mutable = []string{"", "cat", "猫"}

// relation is a set of pairs: the acting user and the target.
type relation map[[2]int]bool

// Codes of refusals.
const (
	notFound  = "NOT_FOUND"
	forbidden = "FORBIDDEN"
)

func newModel() *model {
	return &model{follows: relation{}, requests: relation{}, blocks: relation{}, mutes: relation{}, likes: relation{}, words: map[[2]int]bool{}}
}

// nobody is the anonymous viewer.
const nobody = -1

// sees reports whether the viewer may be shown the post directly.
func (m *model) sees(viewer, post int) bool {
	p := m.posts[post]
	switch {
	case p.deleted:
		return false
	case viewer == p.author:
		return true
	case p.hidden, m.users[p.author].hidden:
		return false
	case m.blocks[[2]int{viewer, p.author}] || m.blocks[[2]int{p.author, viewer}]:
		return false
	case p.visibility == schema.Public:
		return true
	}
	follows, followed := m.follows[[2]int{viewer, p.author}], m.follows[[2]int{p.author, viewer}]
	return p.visibility == schema.Followers && follows || p.visibility == schema.Mutuals && follows && followed
}

// gets reports whether the viewer's home timeline includes the post.
func (m *model) gets(viewer, post int) bool {
	return m.belongs(viewer, post) && (m.posts[post].author == viewer || !m.words[[2]int{viewer, m.posts[post].word}])
}

// belongs reports whether the post belongs in the viewer's inbox, regardless of muted words.
func (m *model) belongs(viewer, post int) bool {
	author := m.posts[post].author
	return m.sees(viewer, post) &&
		(author == viewer || m.follows[[2]int{viewer, author}] && !m.mutes[[2]int{viewer, author}])
}

// which returns the matching posts, newest first.
func (m *model) which(match func(post int) bool) []int {
	list := []int{}
	for i := range m.posts {
		if match(i) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Compare(m.posts[b].id, m.posts[a].id) })
	return list
}

func (m *model) timeline(viewer int) []int {
	return m.which(func(p int) bool { return m.gets(viewer, p) })
}

func (m *model) profile(viewer, author int) []int {
	return m.which(func(p int) bool { return m.posts[p].author == author && m.sees(viewer, p) })
}

func (m *model) likesOf(post int) (n int) { return m.likes.count(1, post) }

// counts reports whether got equals the number of pairs of r that have number at index place. Users
// who are leaving may be counted or not.
func (m *model) counts(got int, r relation, place, number int) bool {
	all, leave := r.count(place, number), 0
	for pair := range r {
		if pair[place] == number && m.users[pair[1-place]].leaving {
			leave++
		}
	}
	return all-leave <= got && got <= all
}

// bury removes a deleted user from all relations.
func (m *model) bury(user int) {
	m.users[user].leaving, m.users[user].gone = false, true
	for _, r := range []relation{m.follows, m.requests, m.blocks, m.mutes} {
		maps.DeleteFunc(r, func(pair [2]int, _ bool) bool { return pair[0] == user || pair[1] == user })
	}
	maps.DeleteFunc(m.likes, func(like [2]int, _ bool) bool { return like[0] == user || m.posts[like[1]].author == user })
	maps.DeleteFunc(m.words, func(pair [2]int, _ bool) bool { return pair[0] == user })
}

// ranked returns the newest posts of the timeline by weight.
func (m *model) ranked(viewer int) []int {
	list := m.timeline(viewer)
	list = list[:min(len(list), feedtest.InboxCap)]
	weight := func(p int) float64 {
		born := m.posts[p].id >> 12 // milliseconds of the id clock
		return math.Log10(float64(max(m.likesOf(p), 1))) + (time.Duration(born)*time.Millisecond).Seconds()/45000
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return list
}

// unread returns the entries above the marker that the viewer did not write, among as many as an
// inbox holds.
func (m *model) unread(viewer int) (n int) {
	above := m.which(func(p int) bool { return m.gets(viewer, p) && m.posts[p].id > m.users[viewer].marker })
	for _, p := range above[:min(len(above), feedtest.InboxCap)] {
		if m.posts[p].author != viewer {
			n++
		}
	}
	return n
}

// count returns how many pairs of the relation have the user at the given index.
func (r relation) count(place, user int) (n int) {
	for pair := range r {
		if pair[place] == user {
			n++
		}
	}
	return n
}

// relates reports whether others can change this kind of relation to the user. A hidden user who
// may return can lose access but cannot be given any.
func (m *model) relates(do string, user int) bool {
	u := m.users[user]
	return !u.hidden || !u.leaving && !u.gone && do != "follow" && do != "accept"
}

func (m *model) follow(a, b int) (code string, begun bool) {
	switch {
	case m.blocks[[2]int{a, b}] || m.blocks[[2]int{b, a}]:
		return forbidden, false
	case m.follows[[2]int{a, b}]:
		return "", false
	case m.users[b].approves:
		m.requests[[2]int{a, b}] = true
		return "", false
	}
	delete(m.requests, [2]int{a, b})
	m.follows[[2]int{a, b}] = true
	return "", true
}

func (m *model) unfollow(a, b int) {
	delete(m.requests, [2]int{a, b})
	delete(m.follows, [2]int{a, b})
}

// accept makes b, who has asked, a follower of a.
func (m *model) accept(a, b int) (code string, begun bool) {
	if !m.requests[[2]int{b, a}] {
		if m.follows[[2]int{b, a}] {
			return "", false
		}
		return notFound, false
	}
	delete(m.requests, [2]int{b, a})
	m.follows[[2]int{b, a}] = true
	return "", true
}

func (m *model) reject(a, b int) string {
	if !m.requests[[2]int{b, a}] {
		return notFound
	}
	delete(m.requests, [2]int{b, a})
	return ""
}

func (m *model) block(a, b int) {
	m.blocks[[2]int{a, b}] = true
	m.unfollow(a, b)
	m.unfollow(b, a)
}

// change returns the refusal, if any, of a change of the post by a.
func (m *model) change(a, post int) string {
	switch {
	case !m.sees(a, post):
		return notFound
	case m.posts[post].author != a:
		return forbidden
	}
	return ""
}

func (m *model) remove(post int) {
	m.posts[post].deleted = true
	for like := range m.likes {
		if like[1] == post {
			delete(m.likes, like)
		}
	}
}
