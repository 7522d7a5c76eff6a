package storage

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// embeddedTick is the resolution with which keys expire in the in-process Redis, whose clock moves
// only when it is told to.
const embeddedTick = time.Second

// embeddedTimeout bounds a command. It is long, because this server can be busy but not
// unreachable, and the client would repeat a command that timed out.
const embeddedTimeout = time.Minute

// embedded is a Redis in this process. Its connections are in-memory pipes; other processes of the
// user connect through a Unix socket.
type embedded struct {
	redis *miniredis.Miniredis
	stop  chan struct{}
	clock sync.WaitGroup

	listener net.Listener   // for other processes; nil if there is none
	others   sync.WaitGroup // connections of other processes

	mu     sync.Mutex
	server *server.Server // nil after close
}

func startEmbedded() *embedded {
	e := &embedded{redis: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	// The first Dial starts a server without a listener. Its connection is not used, because
	// miniredis' pipe has no buffer: a pipeline longer than the server's buffer would block
	// forever.
	if conn, err := e.redis.Dial(); err == nil {
		_ = conn.Close()
	}
	e.server = e.redis.Server()
	e.clock.Go(e.tick)
	return e
}

func (e *embedded) tick() {
	ticker := time.NewTicker(embeddedTick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case now := <-ticker.C:
			e.redis.FastForward(now.Sub(last))
			last = now
		case <-e.stop:
			return
		}
	}
}

func (e *embedded) client() *redis.Client {
	o := embeddedOptions()
	o.Addr, o.Dialer = "in-process", e.dial
	return redis.NewClient(o)
}

func embeddedOptions() *redis.Options {
	return &redis.Options{
		ReadTimeout:              embeddedTimeout,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: noMaintNotifications(),
	}
}

func (e *embedded) dial(context.Context, string, string) (net.Conn, error) { return e.connect() }

func (e *embedded) connect() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return nil, errors.New("the in-process Redis is closed")
	}
	ours, theirs := newPipe()
	e.server.ServeConn(theirs)
	return ours, nil
}

func (e *embedded) close() error {
	e.mu.Lock()
	e.server = nil
	e.mu.Unlock()
	if e.listener != nil {
		_ = e.listener.Close() // also removes the socket file
	}
	close(e.stop)
	e.clock.Wait()
	e.redis.Close()
	e.others.Wait() // the server has closed their connections
	return nil
}
