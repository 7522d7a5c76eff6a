package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// house is a fixture of two servers and a worker that share their databases. Ben follows ann
// and is connected to both servers.
type house struct {
	stores   *storage.Stores
	settings []string
	a, b     *process
	worker   *process
	ann, ben user
	clients  []*subscriber
}

// shared returns the settings of processes that share the stores.
func shared(stores *storage.Stores) []string {
	config := storagetest.Config(stores)
	return []string{
		"TIDELINE_DATABASE_URL=" + config.DatabaseURL, "TIDELINE_REDIS_URL=" + config.RedisURL, "TIDELINE_LOG_FORMAT=json",
	}
}

func newHouse(t *testing.T, stores *storage.Stores) *house {
	t.Helper()
	h := &house{stores: stores, settings: shared(stores)}
	h.a = start(t, h.settings, "server", "--addr=127.0.0.1:0")
	h.b = start(t, h.settings, "server", "--addr=127.0.0.1:0")
	h.worker = h.startWorker(t)
	h.ann, h.ben = signUp(t, h.a, "ann"), signUp(t, h.b, "ben")
	h.ben.follow(t, h.b, h.ann)
	for _, server := range []*process{h.a, h.b} {
		h.clients = append(h.clients, h.ben.subscribe(t, server))
		server.subscribed(1)
	}
	return h
}

func (h *house) startWorker(t *testing.T) *process {
	t.Helper()
	return start(t, h.settings, "worker", "--worker-addr=127.0.0.1:0")
}

func (h *house) received(texts ...string) {
	for _, client := range h.clients {
		client.received(texts...)
	}
}

func (h *house) stop(t *testing.T) {
	t.Helper()
	for _, p := range []*process{h.a, h.b, h.worker} {
		require.Zero(t, p.stop())
	}
}

// A worker is killed during a fan-out. The next worker completes it, and no client gets a
// post twice.
func TestWorkerKilled(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	h := newHouse(t, storagetest.Real(t))
	h.ann.post(t, h.a, "one")
	h.received("one")

	// The lock blocks the fan-out when it reads the followers.
	tx, err := h.stores.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE follows IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	h.ann.post(t, h.a, "two")
	h.worker.await("its fan-out waits", func() bool {
		var waiting int
		require.NoError(t, h.stores.SQL.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_locks WHERE relation = 'follows'::regclass AND NOT granted").Scan(&waiting))
		return waiting > 0
	})
	h.worker.kill()
	require.NoError(t, tx.Rollback())

	h.ann.post(t, h.a, "three")
	require.Equal(t, []string{"three", "two", "one"}, h.ann.timeline(t, h.a))
	h.worker = h.startWorker(t)
	h.ben.arrived(t, h.b, "three", "two", "one")
	h.received("one", "two", "three")
	h.stop(t)
}

func TestApartOnRedis(t *testing.T) {
	t.Parallel()
	testApart(t, storagetest.Real(t))
}

func TestApartOnCluster(t *testing.T) {
	t.Parallel()
	testApart(t, storagetest.Open(t, storage.Config{
		DatabaseURL: storagetest.PostgresURL(t), RedisURL: storagetest.ClusterURL(t),
	}))
}

// A post created at one server reaches a user's clients at both servers, once each. After
// Redis is wiped, no timeline lacks a post.
func testApart(t *testing.T, stores *storage.Stores) {
	h := newHouse(t, stores)
	h.ann.post(t, h.a, "one")
	h.received("one")
	h.ben.arrived(t, h.b, "one")

	storagetest.Wipe(t, h.stores)
	require.Equal(t, []string{"one"}, h.ann.timeline(t, h.a))
	h.ann.post(t, h.a, "two")
	h.received("one", "two")
	h.ben.arrived(t, h.a, "two", "one")
	storagetest.Wipe(t, h.stores)
	require.Equal(t, []string{"two", "one"}, h.ben.timeline(t, h.b))
	h.stop(t)
}
