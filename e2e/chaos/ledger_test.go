package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger records when users changed post visibilities and relations. From this it derives
// whether a user may have seen a post at a time. While a change is unfinished, both the old
// and the new value are possible.
type ledger struct {
	mu    sync.Mutex
	facts map[fact]*history
	posts map[int64]links
}

// fact identifies a changeable value: the visibility of a post, or whether one user follows,
// blocks or mutes another.
type fact struct {
	kind string // "post", "follow", "block", "mute"
	a, b int64  // the post and 0, or the acting user and the other user
}

// values is a bit set of possible values of a fact. A fact about two users has the value no
// or yes; a fact about a post has a visibility or gone.
type values uint8

const (
	no, yes values = 1 << 0, 1 << 1

	gone      values = 1 << 0
	public    values = 1 << 1
	followers values = 1 << 2
	mutuals   values = 1 << 3
	private   values = 1 << 4
)

// history is a fact's first value and its changes. The changes do not overlap.
type history struct {
	first   values
	changes []change
}

// change is an API call that changes a fact. Until the call ends, the fact has the old or the
// new value. If any attempt got no answer, the change may be executed again at any later
// time, by a process that was frozen and continues.
type change struct {
	to           values
	began, ended time.Time // ended is zero until the change is done
	unanswered   bool
}

func newLedger() *ledger { return &ledger{facts: map[fact]*history{}, posts: map[int64]links{}} }

// posted adds a post with its first visibility.
func (l *ledger) posted(post int64, p links, v values) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts[post] = p
	l.facts[fact{"post", post, 0}] = &history{first: v}
}

// follows adds a follow that exists from the start.
func (l *ledger) follows(follower, followee int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts[fact{"follow", follower, followee}] = &history{first: yes}
}

// now returns the possible values of a fact at this moment.
func (l *ledger) now(f fact) values {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.possible(f, time.Now(), time.Now())
}

// begin records that the facts are about to change to the value to. The caller calls the
// returned function after each attempt: done says that the change is done, answered that the
// attempt got an answer.
func (l *ledger) begin(to values, facts ...fact) (attempted func(done, answered bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	at := map[*history]int{}
	for _, f := range facts {
		h := l.facts[f]
		if h == nil {
			h = &history{first: no}
			l.facts[f] = h
		}
		at[h] = len(h.changes)
		h.changes = append(h.changes, change{to: to, began: began})
	}
	return func(done, answered bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for h, i := range at {
			if c := &h.changes[i]; done {
				c.ended = time.Now()
			} else if !answered {
				c.unanswered = true
			}
		}
	}
}

// possible returns all values that the fact may have had between from and to.
func (l *ledger) possible(f fact, from, to time.Time) values {
	h := l.facts[f]
	if h == nil {
		return no
	}
	now, always := h.first, values(0)
	for _, c := range h.changes {
		switch {
		case c.began.After(to):
			return now | always
		case !c.ended.IsZero() && c.ended.Before(from):
			now = c.to
		default:
			now |= c.to
		}
		if c.unanswered {
			always |= c.to
		}
	}
	return now | always
}

// mightSee reports whether the viewer may have seen the post at some moment between from and
// to: in the home timeline if home is true, otherwise in the author's profile. It returns
// true for unknown posts.
func (l *ledger) mightSee(viewer, post int64, home bool, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	might := func(kind string, a, b int64, v values) bool { return l.possible(fact{kind, a, b}, from, to)&v != 0 }
	is := l.rule(might)
	switch _, known := l.posts[post]; {
	case !known:
		return true
	case home:
		return is.home(viewer, post)
	}
	return is.profile(viewer, post)
}

// surelySaw reports whether the post was certainly in the viewer's home timeline during
// the whole time between from and to, and no change in that time could have announced it again.
func (l *ledger) surelySaw(viewer, post int64, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule(func(kind string, a, b int64, v values) bool { return l.possible(fact{kind, a, b}, from, to) == v }).home(viewer, post)
}

// rule returns the rule for which is says whether a fact has a value.
func (l *ledger) rule(is func(kind string, a, b int64, v values) bool) rule {
	return rule{
		post:  func(id int64) (links, bool) { p, known := l.posts[id]; return p, known },
		has:   func(id int64, v values) bool { return is("post", id, 0, v) },
		holds: func(kind string, a, b int64) bool { return is(kind, a, b, yes) },
		lacks: func(kind string, a, b int64) bool { return is(kind, a, b, no) },
	}
}

// story describes the visibility of a post and its changes. Times are relative to from.
func (l *ledger) story(post int64, from time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.facts[fact{"post", post, 0}]
	if h == nil {
		return "unknown"
	}
	text := visibilities[h.first]
	for _, c := range h.changes {
		text += fmt.Sprintf(", %s at +%.1f s", visibilities[c.to], c.began.Sub(from).Seconds())
	}
	return text
}

// TestLedgerKnowsWhatMightBeSeen tests the ledger itself.
func TestLedgerKnowsWhatMightBeSeen(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l := newLedger()
	l.posted(7, links{author: 1}, followers)
	might := func(viewer int64, from, to int) bool { return l.mightSee(viewer, 7, true, at(from), at(to)) }
	l.facts[fact{"follow", 2, 1}] = &history{first: no, changes: []change{
		{to: yes, began: at(10), ended: at(12)}, {to: no, began: at(20), ended: at(22)}, {to: yes, began: at(30), unanswered: true},
	}}
	for _, c := range []struct {
		from, to int
		want     bool
	}{{0, 9, false}, {9, 11, true}, {13, 14, true}, {21, 21, true}, {19, 25, true}, {23, 25, false}, {23, 31, true}, {50, 60, true}} {
		require.Equal(t, c.want, might(2, c.from, c.to), c)
	}
	require.True(t, might(1, 0, 99))
	require.False(t, might(3, 0, 99))
	surely := func(viewer int64, from, to int) bool { return l.surelySaw(viewer, 7, at(from), at(to)) }
	require.True(t, surely(1, 0, 99))
	require.True(t, surely(2, 13, 19))
	require.False(t, surely(2, 11, 19))
	require.False(t, surely(2, 13, 20))
	l.facts[fact{"block", 1, 2}] = &history{first: no, changes: []change{{to: yes, began: at(14), ended: at(15)}}}
	require.True(t, might(2, 13, 18))
	require.False(t, might(2, 16, 18))
	l.facts[fact{"post", 7, 0}] = &history{first: followers, changes: []change{{to: gone, began: at(12), ended: at(13)}}}
	require.False(t, might(1, 14, 15))
	require.True(t, l.mightSee(2, 99, true, at(0), at(1)))
}

// TestLedgerKnowsConversations tests the ledger itself.
func TestLedgerKnowsConversations(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l := newLedger()
	const root, reply, repost = 7, 8, 9
	l.posted(root, links{author: 1}, public)
	l.posted(reply, links{author: 2, root: root, answered: 1}, public)
	l.posted(repost, links{author: 2, original: root}, public)
	for viewer, followed := range map[int64][]int64{3: {1, 2}, 4: {2}} {
		for _, author := range followed {
			l.follows(viewer, author)
		}
	}
	sees := func(viewer, post int64, home bool, s int) bool { return l.mightSee(viewer, post, home, at(s), at(s)) }
	for _, c := range []struct {
		viewer, post int64
		home, want   bool
	}{
		{3, reply, true, true}, {3, repost, true, true},
		{4, reply, true, false}, {4, reply, false, true}, {4, repost, true, true}, // 4 does not follow whom the reply answers
		{1, reply, false, true}, {1, reply, true, false}, {2, reply, true, true},
	} {
		require.Equal(t, c.want, sees(c.viewer, c.post, c.home, 0), c)
	}
	require.True(t, l.surelySaw(3, reply, at(0), at(99)))
	l.facts[fact{"post", root, 0}].changes = []change{{to: private, began: at(10), ended: at(12)}}
	require.False(t, l.surelySaw(3, reply, at(0), at(99)))
	require.True(t, sees(3, reply, true, 11))
	for _, post := range []int64{reply, repost} {
		require.False(t, sees(3, post, false, 20))
		require.False(t, sees(3, post, true, 20))
	}
	require.True(t, sees(2, reply, true, 20))
	require.False(t, sees(2, repost, true, 20))
}
