package storage_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// Another process opens the SQLite file of an embedded server, whose data directory is locked.
func TestOpenBesideAnEmbeddedProcess(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir()}
	_, err := storage.OpenBeside(t.Context(), cfg, discard)
	require.ErrorIs(t, err, os.ErrNotExist, "it makes no file")
	running := storagetest.Open(t, cfg)
	require.NoError(t, running.Migrate(t.Context()))
	s, err := storage.OpenBeside(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.Nil(t, s.Redis)
	users, err := s.DB.User.Query().Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, users)
	require.NoError(t, s.Close())
}

// A command joins the process that owns the data directory and uses the Redis inside it. Without
// such a process, it opens the stores itself, even after one was killed.
func TestJoin(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir()}
	running, err := storage.Open(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.NoError(t, running.Migrate(t.Context()))
	joined, err := storage.Join(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.False(t, joined.Embedded)
	require.NoError(t, joined.Redis.Set(t.Context(), "from", "outside", 0).Err())
	value, err := running.Redis.Get(t.Context(), "from").Result()
	require.NoError(t, err)
	require.Equal(t, "outside", value)
	heard := running.Redis.(*redis.Client).Subscribe(t.Context(), "news")
	_, err = heard.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, joined.Redis.Publish(t.Context(), "news", "hello").Err())
	message, err := heard.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", message.Payload)
	require.NoError(t, heard.Close())
	pipe := joined.Redis.Pipeline()
	for i := range 10_000 {
		pipe.Set(t.Context(), strconv.Itoa(i), strings.Repeat("x", 100), 0)
	}
	_, err = pipe.Exec(t.Context())
	require.NoError(t, err)
	n, err := running.DB.User.Query().Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	info, err := os.Stat(filepath.Join(cfg.DataDir, "run"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, running.Close())
	require.Error(t, joined.Redis.Ping(t.Context()).Err())
	require.NoError(t, joined.Close())
	socket := filepath.Join(cfg.DataDir, "run", "redis.sock")
	require.NoError(t, os.WriteFile(socket, nil, 0o600)) // a killed process leaves it behind
	for range 2 {
		alone, err := storage.Join(t.Context(), cfg, discard)
		require.NoError(t, err)
		require.True(t, alone.Embedded)
		second, err := storage.Join(t.Context(), cfg, discard)
		require.NoError(t, err)
		require.NoError(t, second.Redis.Ping(t.Context()).Err())
		require.NoError(t, second.Close())
		require.NoError(t, alone.Close())
	}
}

// A server works with a data directory whose name is too long for a socket. Commands are refused.
func TestJoinWhereNoSocketIsPossible(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: filepath.Join(t.TempDir(), strings.Repeat("long", 40))}
	running, err := storage.Open(t.Context(), cfg, discard)
	require.NoError(t, err)
	_, err = storage.Join(t.Context(), cfg, discard)
	require.ErrorContains(t, err, "lets nobody else in")
	require.NoError(t, running.Close())
}
