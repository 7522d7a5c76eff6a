package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"tideline/feed/account"

	"github.com/vektah/gqlparser/v2/gqlerror"
)

// quota bounds what each of many may hold at once in this process. A nil quota
// bounds nothing.
type quota struct {
	most int

	mu   sync.Mutex
	held map[string]int
}

func newQuota(most int) *quota { return &quota{most: most, held: make(map[string]int)} }

// take counts one more for who, ok=false when that would be too many. What it
// took must be given back, once.
func (q *quota) take(who string) (giveBack func(), ok bool) {
	if q == nil {
		return func() {}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[who] >= q.most {
		return nil, false
	}
	q.held[who]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.held[who]--; q.held[who] == 0 {
			delete(q.held, who)
		}
	}, true
}

// quotas are those of sockets and of subscriptions, by "user:1" or by address.
// The zero quotas bound nothing.
type quotas struct {
	userSockets, addressSockets             *quota
	userSubscriptions, addressSubscriptions *quota
}

// conn is a client's connection. It gives back what was counted for it when it
// closes.
type conn struct {
	net.Conn

	mu     sync.Mutex
	closed bool
	held   []func() // to give back
	slot   func()   // the same for its place at the door; nil once it has left
	socket string   // the address whose socket it is, "" before it is one
	user   int64    // whose socket it is, 0 before somebody uses it
}

func (c *conn) Close() error {
	c.mu.Lock()
	held := c.held
	c.held, c.closed = nil, true
	c.mu.Unlock()
	for _, giveBack := range held {
		giveBack()
	}
	c.leave()
	return c.Conn.Close()
}

// leave makes room at the door for another connection: this one carries no
// requests any more, and counts elsewhere.
func (c *conn) leave() {
	c.mu.Lock()
	slot := c.slot
	c.slot = nil
	c.mu.Unlock()
	if slot != nil {
		slot()
	}
}

// CloseWrite and SetWriteBuffer are those of TCP, which users of a connection
// look for.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetWriteBuffer see CloseWrite.
func (c *conn) SetWriteBuffer(bytes int) error {
	if tuned, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return tuned.SetWriteBuffer(bytes)
	}
	return nil
}

// use notes who uses the socket; the first user is counted.
func (c *conn) use(v account.Viewer, q *quota) *gqlerror.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == "" || c.closed || v.ID == 0 || v.ID == c.user || q == nil {
		return nil
	}
	giveBack, ok := q.take(userKey(v))
	if !ok {
		return overQuota("sockets", q.most, "A user may have %d sockets open at once. Close another one first.")
	}
	c.user, c.held = v.ID, append(c.held, giveBack)
	return nil
}

// become notes that the connection will be a socket of the address, ok=false
// when the address has too many.
func (c *conn) become(address string, q *quota) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket != "" || c.closed {
		return true
	}
	giveBack, ok := q.take(address)
	if ok {
		c.socket, c.held = address, append(c.held, giveBack)
	}
	return ok
}

func userKey(v account.Viewer) string { return "user:" + strconv.FormatInt(v.ID, 10) }

// overQuota is a refusal that only giving something back can help.
func overQuota(limit string, most int, message string) *gqlerror.Error {
	err := gqlerror.Errorf(message, most)
	err.Extensions = map[string]any{"code": codeRateLimited, "limit": limit, "allowed": most}
	return err
}

// stream counts a stream of events as a socket, for as long as ctx goes on.
func (q quotas) stream(ctx context.Context, v account.Viewer, address string) *gqlerror.Error {
	if v.ID != 0 {
		giveBack, ok := q.userSockets.take(userKey(v))
		if !ok {
			return overQuota("sockets", q.userSockets.most, "A user may have %d sockets and streams open at once. Close another one first.")
		}
		context.AfterFunc(ctx, giveBack)
	}
	giveBack, ok := q.addressSockets.take(address)
	if !ok {
		return overQuota("sockets", q.addressSockets.most, "An address may have %d sockets and streams open at once. Close another one first.")
	}
	context.AfterFunc(ctx, giveBack)
	return nil
}

// subscribe counts a subscription for as long as ctx goes on.
func (q quotas) subscribe(ctx context.Context, v account.Viewer) *gqlerror.Error {
	if v.ID != 0 {
		giveBack, ok := q.userSubscriptions.take(userKey(v))
		if !ok {
			return overQuota("subscriptions", q.userSubscriptions.most, "A user may have %d subscriptions at once. End another one first.")
		}
		context.AfterFunc(ctx, giveBack)
	}
	giveBack, ok := q.addressSubscriptions.take(subscriber(ctx))
	if !ok {
		return overQuota("subscriptions", q.addressSubscriptions.most, "An address may have %d subscriptions at once. End another one first.")
	}
	context.AfterFunc(ctx, giveBack)
	return nil
}

type subscriberKey struct{}

// withSubscriber notes from which address a subscription comes.
func withSubscriber(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, subscriberKey{}, address)
}

func subscriber(ctx context.Context) string {
	address, _ := ctx.Value(subscriberKey{}).(string)
	return address
}

type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(*tls.Conn); ok {
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the connection that a request came by, nil outside of one.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// door is a listener that lets in a bounded number of connections, besides
// those that have become sockets or streams. When it is full, new ones wait at
// the door: those inside have deadlines. One address cannot fill it; those of
// proxies are many clients'.
type door struct {
	net.Listener
	slots   chan struct{}
	address *quota
	proxies proxies
	closing chan struct{}
	close   func() error
}

func newDoor(l net.Listener, slots int, address *quota, p proxies) *door {
	d := &door{Listener: l, slots: make(chan struct{}, slots), address: address, proxies: p, closing: make(chan struct{})}
	d.close = sync.OnceValue(func() error {
		close(d.closing)
		return l.Close()
	})
	return d
}

// Close also ends an Accept that waits for room.
func (d *door) Close() error { return d.close() }

// Accept see net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case d.slots <- struct{}{}:
	case <-d.closing:
		return nil, net.ErrClosed
	}
	for {
		accepted, err := d.Listener.Accept()
		if err != nil {
			<-d.slots
			return nil, err
		}
		remote := accepted.RemoteAddr().String()
		quota := d.address
		if from, err := netip.ParseAddrPort(remote); err == nil && d.proxies.trust(from.Addr()) {
			quota = nil
		}
		giveBack, ok := quota.take(addressOf(remote))
		if !ok {
			accepted.Close()
			continue
		}
		return &conn{Conn: accepted, slot: func() { giveBack(); <-d.slots }}, nil
	}
}
