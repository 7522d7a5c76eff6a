package upgrade

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/ent/job"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// The numbers of users. A third of the readers use graphql-ws, a third the TypeScript kit, and
// a third the Go client.
const (
	authors = 3
	readers = 12
)

// line is a row of the printed table.
type line struct {
	step string
	tally
	events, missed, doubled int
}

// world is the fixture of the test: the users, their clients, and the result of each step.
type world struct {
	*town
	t        *testing.T
	settings []string
	crowds   []worldtest.Clients
	table    []line
	told     int // posts acknowledged by the end of the last step
	doubled  int
}

func TestRollingUpgrade(t *testing.T) {
	worldtest.NeedNode(t)
	if errors.Is(noOlder, errNoHistory) {
		t.Skipf("SKIPPED, UPGRADES NOT TESTED: %v", noOlder)
	}
	require.NoError(t, noOlder)
	cfg := storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.EmptyPostgresURL(t), RedisURL: storagetest.StartRedis(t).URL()}
	w := &world{t: t, settings: []string{
		"TIDELINE_DATABASE_URL=" + cfg.DatabaseURL, "TIDELINE_REDIS_URL=" + cfg.RedisURL,
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=30s",
	}}
	w.run(older, "migrate")
	var workers, servers []*worldtest.Process
	for range 2 {
		workers = append(workers, worldtest.NewProcess(t, older, w.settings, "--worker-addr", "worker"))
		servers = append(servers, worldtest.NewProcess(t, older, w.settings, "--addr", "server"))
	}
	var err error
	w.town, err = newTown(t.Context(), servers, authors, readers)
	require.NoError(t, err)
	w.connect()
	stop := w.live(t.Context())
	defer stop()
	replace := func(program string, processes ...*worldtest.Process) func() {
		return func() {
			for _, p := range processes {
				p.End(syscall.SIGTERM)
				p.Use(program)
				require.NoError(t, p.Start())
			}
		}
	}

	w.step("the previous release", func() {})
	w.step("migrate: expand", func() {
		t.Log(w.run(binary, "migrate", "--plan"))
		t.Log(w.run(binary, "migrate", "--phase=expand"))
	})
	w.step("workers 1, 2: new", replace(binary, workers...))
	w.step("servers 1, 2: new", replace(binary, servers...))
	w.step("server 1, worker 2: back", func() {
		replace(older, servers[0], workers[1])()
		out, err := w.try(binary, "migrate", "--phase=contract")
		require.Error(t, err, out)
		require.Contains(t, out, "processes of others run", "what the older ones need does not go")
	})
	w.step("worker 2, server 1: new again", replace(binary, workers[1], servers[0]))
	w.step("migrate: contract", func() { t.Log(w.run(binary, "migrate", "--phase=contract")) })
	stop()
	w.verdict(cfg)
}

// connect starts the clients and waits until all are connected.
func (w *world) connect() {
	third := len(w.readers) / 3
	w.crowds = []worldtest.Clients{
		worldtest.NewCrowd(w.t, w.readers[:third], third, w.servers...),
		worldtest.NewKitCrowd(w.t, w.readers[third:2*third], w.servers...),
		worldtest.NewFollowers(w.t, w.readers[2*third:], false, w.servers...),
	}
	for _, c := range w.crowds {
		require.NoError(w.t, c.Calm()) // only the upgrade breaks connections
	}
}

// step calls act under load, and then waits until every client has all acknowledged posts.
func (w *world) step(name string, act func()) {
	began := time.Now()
	act()
	time.Sleep(max(0, *length/7-time.Since(began))) // the load continues
	writes, posts := w.turn()
	missed, doubled := w.await(posts)
	l := line{name, writes, (len(posts) - w.told) * len(w.readers), missed, doubled - w.doubled}
	w.told, w.doubled = len(posts), doubled
	w.table = append(w.table, l)
	w.t.Logf("%s: %d writes, %d retried, %d failed, %d events", name, l.writes, l.retried, l.failed, l.events)
}

// await waits until every client has the posts, for at most patience. It returns how many are
// missing at the end, and how many have come twice so far.
func (w *world) await(posts []string) (missed, doubled int) {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		missed, doubled = 0, 0
		for _, c := range w.report() {
			held := map[string]bool{}
			for _, id := range c.Held {
				held[id] = true
			}
			for _, id := range posts {
				if !held[id] {
					missed++
				}
			}
			doubled += len(c.Twice)
		}
		if missed == 0 || time.Now().After(until) {
			return missed, doubled
		}
	}
}

func (w *world) report() (all []worldtest.Client) {
	for _, c := range w.crowds {
		clients, err := c.Report()
		require.NoError(w.t, err)
		all = append(all, clients...)
	}
	return all
}

// verdict compares the clients and timelines with SQL and prints the table.
func (w *world) verdict(cfg storage.Config) {
	t := w.t
	stores := storagetest.Open(t, cfg)
	require.Eventually(t, func() bool {
		n, err := stores.DB.Job.Query().Where(job.Dead(false)).Count(t.Context())
		require.NoError(t, err)
		return n == 0
	}, patience, 50*time.Millisecond, "jobs are left")
	dead, err := stores.DB.Job.Query().All(t.Context())
	require.NoError(t, err)
	require.Empty(t, dead, "jobs were given up")

	writes, acknowledged := w.turn()
	w.table[len(w.table)-1].add(writes)
	missed, doubled := w.await(acknowledged)
	last := &w.table[len(w.table)-1]
	last.events, last.missed, last.doubled = last.events+(len(acknowledged)-w.told)*len(w.readers), last.missed+missed, last.doubled+doubled-w.doubled
	t.Log(w.print())

	rows, err := stores.DB.Post.Query().IDs(t.Context())
	require.NoError(t, err)
	var want []string
	for _, id := range rows {
		want = append(want, worldtest.GlobalID("Post", id))
	}
	require.Empty(t, worldtest.Difference("SQL against what was acknowledged", acknowledged, want), "%v", w.broken)
	for i, u := range w.readers {
		ids, err := u.Timeline(t.Context(), w.servers[i%2])
		require.NoError(t, err)
		require.Empty(t, worldtest.Difference(fmt.Sprint("timeline ", i), want, ids))
	}
	resumed := 0
	for i, c := range w.report() {
		require.Empty(t, c.Failed, "client %d", i)
		require.Empty(t, c.Twice, "client %d", i)
		require.Empty(t, worldtest.Difference(fmt.Sprint("client ", i), want, c.Held))
		resumed += c.Resumed
	}
	require.GreaterOrEqual(t, resumed, len(w.readers), "each client lost its server at least once")
	t.Logf("%d clients resumed %d times", len(w.readers), resumed)
	require.Empty(t, w.broken, "writes failed for good")
	for _, l := range w.table {
		require.Zero(t, l.failed+l.missed+l.doubled, l.step)
		require.NotZero(t, l.events, l.step)
	}
	out := w.run(binary, "recount")
	require.Contains(t, out, "0 counters are wrong")
	require.Contains(t, w.run(binary, "migrate"), "there is nothing to do")
}

func (l *line) add(more tally) {
	l.writes, l.retried, l.failed = l.writes+more.writes, l.retried+more.retried, l.failed+more.failed
}

func (w *world) print() string {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "\nstep\twrites\tretried\tfailed\tevents\tmissed\tdoubled\t")
	for _, l := range w.table {
		fmt.Fprintf(columns, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", l.step, l.writes, l.retried, l.failed, l.events, l.missed, l.doubled)
	}
	_ = columns.Flush()
	return text.String()
}

// run runs a command of a tideline program and requires that it succeeds. It returns the output.
func (w *world) run(program string, args ...string) string {
	w.t.Helper()
	out, err := w.try(program, args...)
	require.NoError(w.t, err, out)
	return out
}

func (w *world) try(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), program, args...)
	cmd.Dir = w.t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, w.settings...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
