package limit

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// quota bounds how much each client may hold at once in this process. A nil quota bounds nothing. A client
// over its quota is refused and never waits.
type quota struct {
	most int

	mu    sync.Mutex
	taken map[string]int // by client; no entry for a client that holds nothing
}

func newQuota(most int) *quota { return &quota{most: most, taken: make(map[string]int)} }

// take counts one more for the client. ok is false if that would exceed the quota. The caller
// calls giveBack once.
func (q *quota) take(client string) (giveBack func(), ok bool) {
	if q == nil {
		return func() {}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken[client] >= q.most {
		return nil, false
	}
	q.taken[client]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.taken[client]--; q.taken[client] == 0 {
			delete(q.taken, client)
		}
	}, true
}

// refuse returns the refusal of a client over its quota. It has no RetryAfter, since only giving something
// back helps. The message has a %d for the size of the quota.
func (q *quota) refuse(limit, message string) *Refusal {
	return &Refusal{Message: fmt.Sprintf(message, q.most), Limit: limit, Allowed: q.most}
}

func userKey(user int64) string { return "user:" + strconv.FormatInt(user, 10) }

// Stream counts an event stream as a socket of the client until ctx ends.
//
// Cost: constant, no round trip.
func (l *Limits) Stream(ctx context.Context, c Client) *Refusal {
	if c.User != 0 {
		giveBack, ok := l.userSockets.take(userKey(c.User))
		if !ok {
			return l.userSockets.refuse("sockets", "A user may have %d sockets and streams open at once. Close another one first.")
		}
		context.AfterFunc(ctx, giveBack)
	}
	giveBack, ok := l.addressSockets.take(c.Address)
	if !ok {
		return l.addressSockets.refuse("sockets", "An address may have %d sockets and streams open at once. Close another one first.")
	}
	context.AfterFunc(ctx, giveBack)
	return nil
}

// Subscribe counts a subscription of the client until ctx ends.
//
// Cost: constant, no round trip.
func (l *Limits) Subscribe(ctx context.Context, c Client) *Refusal {
	if c.User != 0 {
		giveBack, ok := l.userSubscriptions.take(userKey(c.User))
		if !ok {
			return l.userSubscriptions.refuse("subscriptions", "A user may have %d subscriptions at once. End another one first.")
		}
		context.AfterFunc(ctx, giveBack)
	}
	giveBack, ok := l.addressSubscriptions.take(c.Address)
	if !ok {
		return l.addressSubscriptions.refuse("subscriptions", "An address may have %d subscriptions at once. End another one first.")
	}
	context.AfterFunc(ctx, giveBack)
	return nil
}

// MarkSocket counts the connection of a request, which becomes a socket, for its address until it closes.
func (l *Limits) MarkSocket(ctx context.Context, address string) *Refusal {
	if c := connOf(ctx); c != nil && !c.markSocket(address, l.addressSockets) {
		return l.addressSockets.refuse("sockets", "An address may have %d sockets open at once.")
	}
	return nil
}

// AttributeTo counts the socket that ctx belongs to for the user, once, until it closes. It does nothing for
// user 0, or if ctx does not belong to a socket.
func (l *Limits) AttributeTo(ctx context.Context, user int64) *Refusal {
	if c := connOf(ctx); c != nil && user != 0 && !c.attributeTo(user, l.userSockets) {
		return l.userSockets.refuse("sockets", "A user may have %d sockets open at once. Close another one first.")
	}
	return nil
}

const (
	// maxDownloads is how many downloads a process sends at once. Each has a page of posts in memory and uses
	// the database all the time, so a few of them must not slow down everybody else.
	maxDownloads = 4
	// downloadRetry is how many seconds a refused download waits. A broken one ends within that time.
	downloadRetry = 30
)

// Download counts a download of the user. If it is not refused, the caller calls giveBack once at its end.
//
// Cost: constant, no round trip.
func (l *Limits) Download(user int64) (giveBack func(), refusal *Refusal) {
	ofUser, ok := l.userDownloads.take(userKey(user))
	if !ok {
		return nil, &Refusal{Message: "A user may have one download at a time. Try again when it has ended.", RetryAfter: downloadRetry}
	}
	ofProcess, ok := l.downloads.take("")
	if !ok {
		ofUser()
		return nil, &Refusal{Message: "The server sends too many files at once. Try again later.", RetryAfter: downloadRetry}
	}
	return func() { ofProcess(); ofUser() }, nil
}
