package bench

import (
	"sync"
	"time"
)

// ledger records which post must arrive at which subscription, and when it did.
type ledger struct {
	users int
	place []map[int]int // of each author: the recipients' subscriptions → place in posting.at

	mu        sync.Mutex
	posts     []*posting // by number
	created   int        // of posts
	owed      int        // deliveries of created posts still to come
	doubled   int        // repeated deliveries
	strays    int        // deliveries to a user who does not follow the author, or of no post of this run
	calls     []time.Duration
	latencies []time.Duration // of first deliveries, from the start of the call
	last      time.Time       // delivery
}

// posting is a post on its way.
type posting struct {
	author  int
	began   time.Time
	created bool       // the server has said so
	at      []delivery // of each recipient
	left    bool       // what has not arrived is no longer waited for, nor counted
}

// delivery is what became of a post at a recipient.
type delivery uint8

const (
	due     delivery = iota
	excused          // the recipient was told to read its timeline again: the post may come, and need not
	arrived
)

// newLedger takes the followers of each user. The subscriptions belong to the users
// in turn. An author's own subscriptions are recipients too.
func newLedger(followers [][]int, subscriptions int) *ledger {
	l := &ledger{users: len(followers), place: make([]map[int]int, len(followers))}
	of := make([][]int, l.users) // subscriptions of each user
	for sub := range subscriptions {
		of[l.userOf(sub)] = append(of[l.userOf(sub)], sub)
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

// userOf returns the user of a subscription.
func (l *ledger) userOf(subscription int) int { return subscription % l.users }

// begin numbers a post that is about to be created.
func (l *ledger) begin(author int, at time.Time) (number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts = append(l.posts, &posting{author: author, began: at, at: make([]delivery, len(l.place[author]))})
	return len(l.posts) - 1
}

// end records what the server answered. A post that failed may exist all the same:
// it may arrive, but need not.
func (l *ledger) end(number int, created bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !created {
		return
	}
	p := l.posts[number]
	p.created = true
	l.created++
	l.calls = append(l.calls, at.Sub(p.began))
	for _, d := range p.at {
		if d == due {
			l.owed++
		}
	}
}

// invalidated records that a subscription was told to read its timeline again: it finds
// there what had begun by now, and no event has to say so.
func (l *ledger) invalidated(subscription int) {
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
			l.owed--
		}
	}
}

// delivered records an event.
func (l *ledger) delivered(subscription, number int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < 0 || number >= len(l.posts) {
		l.strays++
		return
	}
	p := l.posts[number]
	place, expected := l.place[p.author][subscription]
	switch {
	case p.left:
		return
	case !expected:
		l.strays++
		return
	case p.at[place] == arrived:
		l.doubled++
		return
	}
	if p.created && p.at[place] == due {
		l.owed--
	}
	p.at[place] = arrived
	l.latencies = append(l.latencies, at.Sub(p.began))
	if at.After(l.last) {
		l.last = at
	}
}

// missing returns how many deliveries are still to come.
func (l *ledger) missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed
}

// take returns the times of the deliveries since the last call of take, and how many are
// still to come. It ends the waiting for them: none of these posts counts from now on.
func (l *ledger) take() (latencies []time.Duration, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.posts) - 1; i >= 0 && !l.posts[i].left; i-- {
		l.posts[i].left = true
	}
	latencies, missing = l.latencies, l.owed
	l.latencies, l.owed = nil, 0
	return latencies, missing
}

// recipients returns at how many subscriptions each created post had to arrive.
func (l *ledger) recipients() []int {
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
