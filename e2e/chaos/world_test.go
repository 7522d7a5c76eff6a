package chaos

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// clock is the layout of printed times.
const clock = "15:04:05.000"

// world is the fixture of the test: the stores, Tideline's processes, users, clients and
// probers.
type world struct {
	t       *testing.T
	began   time.Time
	cluster *cluster
	pg      *postgres
	servers []*member
	workers []*member
	db      *storage.Stores // for the checks
	users   []worldtest.User
	steady  int // number of clients, the first of the crowd, that keep their connection
	crowd   *worldtest.Crowd
	load    *load
	probers []*prober
	faults  diary
	// afflicted is the Tideline process that has a fault now, or nil.
	afflicted atomic.Pointer[member]
}

// member is a Tideline process with its own proxy to PostgreSQL.
type member struct {
	*worldtest.Process
	name string
	pg   *storagetest.Proxy
}

// options configures a world.
type options struct {
	binary           string
	people           int
	servers, workers int
}

// newWorld starts everything except the load and the probers.
func newWorld(t *testing.T, o options, rng *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, pg: newPostgres(t)}
	w.cluster = newCluster(t, rng.IntN(2) == 0)
	checks := startProxy(t, w.pg.addr, storagetest.OwnedBy("checks"))
	var err error
	w.db, err = storage.Open(t.Context(), storage.Config{
		DatabaseURL: databaseURL(checks.Addr, "postgres"), RedisURL: w.cluster.url("checks"),
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.db.Close() })
	require.NoError(t, w.db.Migrate(t.Context()))

	for i := range o.servers {
		w.servers = append(w.servers, w.newMember(o.binary, fmt.Sprint("server", i), "--addr", "server"))
	}
	for i := range o.workers {
		w.workers = append(w.workers, w.newMember(o.binary, fmt.Sprint("worker", i), "--worker-addr", "worker"))
	}
	w.populate(o.people, rng)
	t.Cleanup(func() { w.keepLogs() })

	servers := w.processes(w.servers)
	// Each user has two clients: a steady one, and one that breaks its connection now and
	// then.
	w.steady = len(w.users)
	w.crowd = worldtest.NewCrowd(t, append(w.users[:len(w.users):len(w.users)], w.users...), w.steady, servers...)
	w.load = newLoad(servers, w.users)
	for _, follow := range w.followed(t.Context()) {
		w.load.ledger.follows(follow[0], follow[1])
	}
	w.began = time.Now()
	return w
}

func (w *world) newMember(binary, name, flag string, args ...string) *member {
	m := &member{name: name, pg: startProxy(w.t, w.pg.addr, storagetest.OwnedBy(name))}
	m.Process = worldtest.NewStopped(w.t, binary, []string{
		"TIDELINE_DATABASE_URL=" + databaseURL(m.pg.Addr, "postgres"), "TIDELINE_REDIS_URL=" + w.cluster.url(name),
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off",
		// The feeds in Redis must hold all posts of the test. Posts beyond a cap are read from
		// SQL, which would hide their loss in Redis.
		"TIDELINE_INBOX_CAP=1000", "TIDELINE_OUTBOX_CAP=1000",
		// Some authors are merged at read time, and some cross the threshold during the test.
		fmt.Sprint("TIDELINE_PULL_ABOVE=", pullAbove),
	}, flag, args...)
	require.NoError(w.t, m.Start())
	return m
}

// pullAbove is the number of followers above which an author's posts are not pushed.
const pullAbove = 9

// populate creates the users, each of which follows about half of the others, and the
// probers' accounts.
func (w *world) populate(people int, rng *rand.Rand) {
	ctx := w.t.Context()
	id := int64(0)
	user := func(handle string) worldtest.User {
		id++
		u, err := worldtest.NewUser(ctx, w.db, id, handle)
		require.NoError(w.t, err)
		return u
	}
	for i := range people {
		w.users = append(w.users, user(fmt.Sprint("user", i)))
	}
	for i, u := range w.users {
		for j, other := range w.users {
			// Nearly all users follow the first two, whose posts are therefore merged.
			if i != j && (rng.IntN(100) < 45 || j < 2 && rng.IntN(100) < 90) {
				require.NoError(w.t, worldtest.Follow(ctx, w.db, u, other))
			}
		}
	}
	for i, server := range w.servers {
		p := &prober{server: server.Process, posts: map[int64]probed{}, refusals: map[string]int{}}
		for j := range probers {
			p.accounts = append(p.accounts, user(fmt.Sprintf("prober%d_%d", i, j)))
		}
		w.probers = append(w.probers, p)
	}
}

// followed returns all follows as pairs of follower and followee.
func (w *world) followed(ctx context.Context) (all [][2]int64) {
	rows, err := w.db.SQL.QueryContext(ctx, `SELECT follower_id, followee_id FROM follows`)
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var f [2]int64
		require.NoError(w.t, rows.Scan(&f[0], &f[1]))
		all = append(all, f)
	}
	require.NoError(w.t, rows.Err())
	return all
}

func (w *world) processes(members []*member) (list []*worldtest.Process) {
	for _, m := range members {
		list = append(list, m.Process)
	}
	return list
}

// members returns all Tideline processes.
func (w *world) members() []*member {
	return append(w.servers[:len(w.servers):len(w.servers)], w.workers...)
}

// count runs a query that returns one number.
func (w *world) count(ctx context.Context, query string) (n int, err error) {
	err = w.db.SQL.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// keepLogs copies the logs of all processes to .test/chaos if the test failed.
func (w *world) keepLogs() {
	if !w.t.Failed() {
		return
	}
	dir := filepath.Join("..", "..", ".test", "chaos")
	logs := map[string]string{"postgres": w.pg.primary.Load().Log()}
	for _, m := range w.members() {
		logs[m.name] = m.Log()
	}
	for _, n := range w.cluster.nodes {
		logs[n.name] = n.Log()
	}
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for name, log := range logs {
		if err == nil {
			err = copyFile(filepath.Join(dir, name+".log"), log)
		}
	}
	if err != nil {
		w.t.Log("the logs were not kept:", err)
		return
	}
	path, _ := filepath.Abs(dir)
	w.t.Log("the logs of all processes are in", path)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
