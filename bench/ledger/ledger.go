// Package ledger checks whether live events are missing, doubled or delivered to wrong recipients.
package ledger

import (
	"slices"
	"sync"
	"time"
)

// Ledger records which post must arrive at which subscriptions, and when it did.
// It is safe for concurrent use.
type Ledger struct {
	users int
	place []map[int]int // by author: index in posting.at of each recipient's subscription

	mu     sync.Mutex
	posts  []*posting // by the post's number
	last   time.Time  // time of the last delivery
	totals Totals
}

// Totals are the totals of a ledger.
type Totals struct {
	Missing   int             // outstanding deliveries of created posts
	Doubled   int             // repeated deliveries
	Strays    int             // deliveries to a user who does not follow the author, or of a post that is not of this run
	Calls     []time.Duration // durations of the calls that created posts
	Latencies []time.Duration // of first deliveries, from the start of the call
	Span      time.Duration   // from the start of the first call to the last delivery
}

// posting is the state of a post.
type posting struct {
	author  int
	began   time.Time
	created bool       // the server has confirmed it
	at      []delivery // by recipient
	left    bool       // the ledger no longer waits for or counts its outstanding deliveries
}

// delivery is the state of a post at a recipient.
type delivery uint8

const (
	due     delivery = iota
	excused          // the recipient was told to read its timeline again: the event may arrive, but need not
	arrived
)

// New returns a ledger for a network, given the followers of each user. The subscriptions are assigned to the
// users in turn. An author's own subscriptions are recipients too.
func New(followers [][]int, subscriptions int) *Ledger {
	l := &Ledger{users: len(followers), place: make([]map[int]int, len(followers))}
	of := make([][]int, l.users) // subscriptions by user
	for sub := range subscriptions {
		of[l.UserOf(sub)] = append(of[l.UserOf(sub)], sub)
	}
	for author := range followers {
		place := map[int]int{}
		for _, user := range append([]int{author}, followers[author]...) {
			for _, sub := range of[user] {
				place[sub] = len(place)
			}
		}
		l.place[author] = place
	}
	return l
}

// UserOf returns the user of a subscription.
func (l *Ledger) UserOf(subscription int) int { return subscription % l.users }

// Begin records a post that is about to be created, and returns its number.
func (l *Ledger) Begin(author int, at time.Time) (number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts = append(l.posts, &posting{author: author, began: at, at: make([]delivery, len(l.place[author]))})
	return len(l.posts) - 1
}

// End records the result of a createPost call. A post whose call failed may exist all the same,
// so it may arrive but need not.
func (l *Ledger) End(number int, created bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !created {
		return
	}
	p := l.posts[number]
	p.created = true
	l.totals.Calls = append(l.totals.Calls, at.Sub(p.began))
	for _, d := range p.at {
		if d == due {
			l.totals.Missing++
		}
	}
}

// Invalidated records that a subscription was told to read its timeline again. It finds there every post
// begun so far, so events for them are no longer required.
func (l *Ledger) Invalidated(subscription int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.posts) - 1; i >= 0 && !l.posts[i].left; i-- {
		p := l.posts[i]
		place, expected := l.place[p.author][subscription]
		if !expected || p.at[place] != due {
			continue
		}
		p.at[place] = excused
		if p.created {
			l.totals.Missing--
		}
	}
}

// Delivered records an event.
func (l *Ledger) Delivered(subscription, number int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < 0 || number >= len(l.posts) {
		l.totals.Strays++
		return
	}
	p := l.posts[number]
	place, expected := l.place[p.author][subscription]
	switch {
	case p.left:
		return
	case !expected:
		l.totals.Strays++
		return
	case p.at[place] == arrived:
		l.totals.Doubled++
		return
	}
	if p.created && p.at[place] == due {
		l.totals.Missing--
	}
	p.at[place] = arrived
	l.totals.Latencies = append(l.totals.Latencies, at.Sub(p.began))
	if at.After(l.last) {
		l.last = at
	}
}

// Totals returns the current totals.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.totals
	t.Calls, t.Latencies = slices.Clone(t.Calls), slices.Clone(t.Latencies)
	if len(l.posts) > 0 && !l.last.IsZero() {
		t.Span = l.last.Sub(l.posts[0].began)
	}
	return t
}

// Missing returns how many deliveries are outstanding.
func (l *Ledger) Missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals.Missing
}

// Take returns the times of the deliveries since the last call of Take, and the number of outstanding ones.
// It stops waiting for these: none of the posts so far counts from now on.
func (l *Ledger) Take() (latencies []time.Duration, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.posts) - 1; i >= 0 && !l.posts[i].left; i-- {
		l.posts[i].left = true
	}
	latencies, missing = l.totals.Latencies, l.totals.Missing
	l.totals.Latencies, l.totals.Missing = nil, 0
	return latencies, missing
}

// Recipients returns the number of recipients of each created post.
func (l *Ledger) Recipients() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var counts []int
	for _, p := range l.posts {
		if p.created {
			counts = append(counts, len(p.at))
		}
	}
	return counts
}
