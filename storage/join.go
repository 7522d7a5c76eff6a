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

// socketPath is where other processes of the user reach the Redis inside the process that
// has the data directory: a folder of its own keeps other users out.
func socketPath(dataDir string) string { return filepath.Join(dataDir, "run", "redis.sock") }

// inUse says that another process has the data directory.
type inUse struct{ dir, owner string }

func (e *inUse) Error() string {
	return fmt.Sprintf("the data directory %s is in use by another Tideline%s: stop it, use another data directory, or set a "+
		"Redis URL: processes can share a Redis server, not one inside a process", e.dir, e.owner)
}

// Join is Open for a command. Where another process has the data directory, the stores are
// those of that process: its SQLite file, and the Redis inside it. Embedded is false then.
// Errors: as of Open, and the other process does not answer.
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

// inOther is a client of the Redis inside another process.
func inOther(path string) *redis.Client {
	o := embeddedOptions()
	o.Network, o.Addr = "unix", path
	return redis.NewClient(o)
}

// letIn lets the user's other processes in at a socket. Each connection is joined with a
// pipe to the server, which must never wait for a reader.
func (e *embedded) letIn(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// The owner of the lock alone comes here: what is there is left from a process that died.
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

// join copies between a connection and the server until either ends.
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
