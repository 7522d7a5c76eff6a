package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/redis/go-redis/v9"
)

// socketPath returns the socket at which other processes of the user reach the Redis inside the
// process that owns the data directory. It has its own directory, which keeps other users out.
func socketPath(dataDir string) string { return filepath.Join(dataDir, "run", "redis.sock") }

// inUse is the error that another process owns the data directory.
type inUse struct{ dir, owner string }

func (e *inUse) Error() string {
	return fmt.Sprintf("the data directory %s is in use by another Tideline%s: stop it, use another data directory, or set a "+
		"Redis URL: processes can share a Redis server, not one inside a process", e.dir, e.owner)
}

// Join is Open for a command. If another process owns the data directory, Join uses the SQLite file
// and the in-process Redis of that process; Embedded is false then. It fails as Open does, or if
// the other process does not answer.
func Join(ctx context.Context, cfg Config, log *slog.Logger) (*Stores, error) {
	s, err := Open(ctx, cfg, log)
	if other := (*inUse)(nil); !errors.As(err, &other) {
		return s, err
	}
	if s, err = OpenBeside(ctx, cfg, log); err != nil {
		return nil, err
	}
	s.Redis = inOther(socketPath(cfg.DataDir))
	s.closers = append(s.closers, s.Redis.Close)
	if err := s.pingRedis(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the Tideline that has the data directory %s lets nobody else in: %w", cfg.DataDir, err), s.Close())
	}
	return s, nil
}

// inOther returns a client of the Redis inside another process.
func inOther(path string) *redis.Client {
	o := embeddedOptions()
	o.Network, o.Addr = "unix", path
	return redis.NewClient(o)
}

// letIn accepts connections of the user's other processes at a socket. A pipe connects each to the
// server, because the server must never wait for a reader.
func (e *embedded) letIn(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Only the owner of the lock gets here, so an existing socket is left over from a dead process.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	e.listener = listener
	e.others.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.others.Go(func() { e.join(conn) })
		}
	})
	return nil
}

// join copies between a connection and the server until either closes.
func (e *embedded) join(conn net.Conn) {
	inside, err := e.connect()
	if err != nil {
		_ = conn.Close()
		return
	}
	var both sync.WaitGroup
	for _, way := range []struct{ to, from net.Conn }{{inside, conn}, {conn, inside}} {
		both.Go(func() {
			_, _ = io.Copy(way.to, way.from)
			_ = conn.Close()
			_ = inside.Close()
		})
	}
	both.Wait()
}
