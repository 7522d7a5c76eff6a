package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger remembers when users changed what decides who may see which post. It tells
// what a user might see at a time, in the user's favour while that is not certain.
type ledger struct {
	mu     sync.Mutex
	facts  map[fact]*history
	author map[int64]int64 // of each post
}

// fact is something that changes: the visibility of a post, or whether one user
// follows, blocks or mutes another.
type fact struct {
	kind string // "post", "follow", "block", "mute"
	a, b int64  // the post; or the user who acts, and the other
}

// values is a set of values that a fact may have: bits. Facts about two users are no
// or yes.
type values uint8

const (
	no, yes values = 1 << 0, 1 << 1

	gone      values = 1 << 0
	public    values = 1 << 1
	followers values = 1 << 2
	mutuals   values = 1 << 3
	private   values = 1 << 4
)

// history is a fact's first value and its changes, which do not overlap.
type history struct {
	first   values
	changes []change
}

// change is a call that changed a fact. While it is under way the fact has the old
// or the new value. If some attempt at it got no answer, it may be executed again at
// any later time: by a process that was stopped and goes on.
type change struct {
	to           values
	began, ended time.Time // ended is zero until it is done
	unanswered   bool
}

func newLedger() *ledger { return &ledger{facts: map[fact]*history{}, author: map[int64]int64{}} }

// posted adds a post with its visibility.
func (l *ledger) posted(post, author int64, v values) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.author[post] = author
	l.facts[fact{"post", post, 0}] = &history{first: v}
}

// follows adds a follow that there is from the start.
func (l *ledger) follows(follower, followee int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts[fact{"follow", follower, followee}] = &history{first: yes}
}

// now is the value of a fact, or its values while it changes.
func (l *ledger) now(f fact) values {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.possible(f, time.Now(), time.Now())
}

// begin notes that the facts are about to change. The function that it returns notes
// the end of an attempt, and whether the change is done.
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

// possible returns the values that the fact had at some moment of the time, as far
// as is known.
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

// mightSee reports whether the viewer might see the post at some moment of the time:
// in the home timeline, or in the author's profile. It is true of posts that it does
// not know.
func (l *ledger) mightSee(viewer, post int64, home bool, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	author, known := l.author[post]
	if !known {
		return true
	}
	might := func(kind string, a, b int64, v values) bool { return l.possible(fact{kind, a, b}, from, to)&v != 0 }
	visible := func(v values) bool { return might("post", post, 0, v) }
	if viewer == author {
		return visible(public | followers | mutuals | private)
	}
	follows := might("follow", viewer, author, yes)
	switch {
	case !might("block", viewer, author, no), !might("block", author, viewer, no):
		return false
	case home && (!follows || !might("mute", viewer, author, no)):
		return false
	}
	return visible(public) || follows && (visible(followers) || might("follow", author, viewer, yes) && visible(mutuals))
}

// surelySaw reports whether the viewer's home timeline had the post all the time,
// whatever was under way, and nothing changed that might have told of it again.
func (l *ledger) surelySaw(viewer, post int64, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	author, known := l.author[post]
	always := func(kind string, a, b int64, v values) bool { return l.possible(fact{kind, a, b}, from, to) == v }
	v := l.possible(fact{"post", post, 0}, from, to)
	switch {
	case !known:
		return false
	case viewer == author:
		return v == public || v == followers || v == mutuals || v == private
	case !always("follow", viewer, author, yes), !always("mute", viewer, author, no),
		!always("block", viewer, author, no), !always("block", author, viewer, no):
		return false
	}
	return v == public || v == followers || v == mutuals && always("follow", author, viewer, yes)
}

// story is the visibility of a post, and what it was changed to and when, counted
// from a time.
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

// TestLedgerKnowsWhatMightBeSeen guards the tool itself.
func TestLedgerKnowsWhatMightBeSeen(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l := newLedger()
	l.posted(7, 1, followers)
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
