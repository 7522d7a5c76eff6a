package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
)

// conn is a connection that the listener has accepted. When it closes it gives
// back everything that was counted for it.
type conn struct {
	net.Conn

	mu       sync.Mutex
	closed   bool
	giveBack []func() // for each quota that counts it
	slot     func()   // gives back its slot of the listener; nil once it is free
	address  string   // whose socket it is, "" when it is no socket
	user     int64    // whose socket it is, 0 before a user is known
}

// Close see net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	giveBack := c.giveBack
	c.giveBack, c.closed = nil, true
	c.mu.Unlock()
	for _, f := range giveBack {
		f()
	}
	c.freeSlot()
	return c.Conn.Close()
}

// freeSlot gives the slot of the listener to another connection: this one carries
// no more requests, and is counted elsewhere.
func (c *conn) freeSlot() {
	c.mu.Lock()
	slot := c.slot
	c.slot = nil
	c.mu.Unlock()
	if slot != nil {
		slot()
	}
}

// CloseWrite closes the sending half of a TCP connection. Libraries look for it by
// a type assertion, as they do for SetWriteBuffer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetWriteBuffer bounds what the kernel buffers of a TCP connection.
func (c *conn) SetWriteBuffer(bytes int) error {
	if tuned, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return tuned.SetWriteBuffer(bytes)
	}
	return nil
}

// SyscallConn gives access to what the kernel knows of the connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// attributeTo counts the connection for the user if it is a socket and does not
// count for that user already; ok is false when the user has too many.
func (c *conn) attributeTo(user int64, q *quota) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.address == "" || c.closed || user == c.user {
		return true
	}
	giveBack, ok := q.take(userKey(user))
	if ok {
		c.user, c.giveBack = user, append(c.giveBack, giveBack)
	}
	return ok
}

// markSocket counts the connection, which becomes a socket, for the address; ok is
// false when the address has too many.
func (c *conn) markSocket(address string, q *quota) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.address != "" || c.closed {
		return true
	}
	giveBack, ok := q.take(address)
	if ok {
		c.address, c.giveBack = address, append(c.giveBack, giveBack)
	}
	return ok
}

type connKey struct{}

// WithConn is the ConnContext of an http.Server behind [Limits.Listener]: by it,
// the methods of Limits find the connection that a request came by.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(*tls.Conn); ok {
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the connection that a request came by, nil when the listener did not
// accept it.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// FreeSlot tells the listener that the connection of a request carries no more
// requests, so that another one may come in; ok is false when the listener did not
// accept the connection.
func FreeSlot(ctx context.Context) (ok bool) {
	c := connOf(ctx)
	if c == nil {
		return false
	}
	c.freeSlot()
	return true
}
