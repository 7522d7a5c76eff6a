package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
)

// conn is a connection that the listener has accepted. Closing it releases everything that
// was counted for it.
type conn struct {
	net.Conn

	mu       sync.Mutex
	closed   bool
	giveBack []func() // one for each quota that counts the connection
	slot     func()   // releases its slot of the listener; nil afterwards
	address  string   // the address that it counts for as a socket; "" if it is not a socket
	user     int64    // the user that it counts for as a socket; 0 before a user is known
}

// Close implements net.Conn.
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

// freeSlot releases the slot of the listener. The connection carries no more requests,
// and is counted elsewhere.
func (c *conn) freeSlot() {
	c.mu.Lock()
	slot := c.slot
	c.slot = nil
	c.mu.Unlock()
	if slot != nil {
		slot()
	}
}

// CloseWrite closes the sending half of a TCP connection. Libraries find this method, and
// SetWriteBuffer, with a type assertion.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetWriteBuffer bounds the kernel's send buffer of a TCP connection.
func (c *conn) SetWriteBuffer(bytes int) error {
	if tuned, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return tuned.SetWriteBuffer(bytes)
	}
	return nil
}

// SyscallConn gives access to the underlying connection of the kernel.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// attributeTo counts the connection for the user if it is a socket and does not count for that user yet. ok
// is false if the user has too many.
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

// markSocket counts the connection as a socket of the address. ok is false if the address has too many.
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

// WithConn is the ConnContext of an http.Server behind [Limits.Listener]. It lets the methods of Limits find
// the connection of a request.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if wrapped, ok := c.(*tls.Conn); ok {
		c = wrapped.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, or nil if the listener did not accept it.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// FreeSlot tells the listener that the connection of a request carries no more requests, so that another one
// can be accepted. ok is false if the listener did not accept the connection.
func FreeSlot(ctx context.Context) (ok bool) {
	c := connOf(ctx)
	if c == nil {
		return false
	}
	c.freeSlot()
	return true
}
