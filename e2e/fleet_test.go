package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// listed is a line of "tideline ps --json".
type listed struct {
	ID           int64
	Roles, State string
	Jobs         int
	Sizes        map[string]struct{ Now, Configured, Wanted int }
}

// fleet is what "tideline ps" lists.
func fleet(t *testing.T, settings []string) (list []listed) {
	t.Helper()
	code, out := run(t, settings, "ps", "--json")
	require.Zero(t, code, out)
	for line := range strings.Lines(out) {
		var p listed
		require.NoError(t, json.Unmarshal([]byte(line), &p), out)
		list = append(list, p)
	}
	return list
}

// outstanding is what "tideline ps" says below the table.
var outstanding = regexp.MustCompile(`Jobs outstanding: (\d+), the oldest for (\S+)\.`)

// An operator pauses a worker: it finishes its job and takes no other. Posts are taken and
// wait, and arrive when the worker is resumed, without a restart.
func TestWorkersArePaused(t *testing.T) {
	t.Parallel()
	needClients(t)
	stores := storagetest.Real(t)
	settings := shared(stores)
	server := start(t, settings, "server", "--addr=127.0.0.1:0")
	worker := start(t, settings, "worker", "--worker-addr=127.0.0.1:0")
	command := func(code int, want string, args ...string) {
		t.Helper()
		got, out := run(t, settings, args...)
		require.Equal(t, code, got, out)
		require.Regexp(t, want, out)
	}
	var processes []listed
	server.await("both are listed", func() bool {
		processes = fleet(t, settings)
		return len(processes) == 2
	})
	require.Equal(t, []string{"server", "running"}, []string{processes[0].Roles, processes[0].State})
	require.Equal(t, []string{"workers", "running"}, []string{processes[1].Roles, processes[1].State})
	id := strconv.FormatInt(processes[1].ID, 10)
	command(0, `(?m)^`+id+` .* workers .* running$`, "ps")
	command(1, "has no workers", "workers", "pause", strconv.FormatInt(processes[0].ID, 10))

	ann, ben := signUp(t, server, "ann"), signUp(t, server, "ben")
	ben.follow(t, server, ann)
	client := ben.subscribe(t, server, modern)
	server.subscribed(1)
	ann.post(t, server, "one")
	client.received("one")

	// The fan-out stops at the followers, whom it cannot read.
	tx, err := stores.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE follows IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	ann.post(t, server, "two")
	worker.await("its fan-out waits", func() bool {
		var waiting int
		require.NoError(t, stores.SQL.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_locks WHERE relation = 'follows'::regclass AND NOT granted").Scan(&waiting))
		return waiting > 0
	})
	command(0, `takes no new job; [1-9]\d* under way`, "workers", "pause", id, "--note=a new disk")
	require.Equal(t, "draining", fleet(t, settings)[1].State)
	command(1, `(?s)told so before.*under way.*not done after 1s`, "workers", "drain", id, "--wait=1s")
	require.NoError(t, tx.Rollback())
	command(0, "is drained", "workers", "drain", "--all")
	client.received("one", "two")
	require.Equal(t, "paused", fleet(t, settings)[1].State)

	fannedOut := func() string {
		_, metrics := worker.get("/metrics")
		require.Contains(t, metrics, "\ntideline_worker_paused 1\n")
		require.Contains(t, metrics, "\ntideline_worker_jobs 0\n")
		return regexp.MustCompile(`tideline_fanout_followers_count \d+`).FindString(metrics)
	}
	before := fannedOut()
	require.NotEmpty(t, before)
	ann.post(t, server, "three")
	server.await("the post's job waits for a second", func() bool {
		_, out := run(t, settings, "ps")
		found := outstanding.FindStringSubmatch(out)
		require.NotNil(t, found, out)
		return found[1] != "0" && found[2] != "0s"
	})
	require.Equal(t, before, fannedOut())
	client.received("one", "two")
	_, metrics := server.get("/metrics")
	require.NotContains(t, metrics, "tideline_worker_paused")

	command(0, "takes jobs", "workers", "resume", id)
	client.received("one", "two", "three")
	command(0, "ann has the role admin", "users", "role", "ann", "admin")
	var log struct {
		AuditLog struct {
			Nodes []struct {
				Action, Note string
				ActorID      *string
			}
		}
	}
	ann.call(t, server, `{ auditLog(first: 3) { nodes { action note actorId } } }`, nil, &log)
	require.Equal(t, []string{"RESUME_WORKERS", "PAUSE_WORKERS", "a new disk"},
		[]string{log.AuditLog.Nodes[1].Action, log.AuditLog.Nodes[2].Action, log.AuditLog.Nodes[2].Note})
	require.Nil(t, log.AuditLog.Nodes[1].ActorID)

	require.Zero(t, worker.stop())
	require.Len(t, fleet(t, settings), 1)
	command(1, "there is no process "+id, "workers", "resume", id)
	require.Zero(t, server.stop())
	require.Empty(t, fleet(t, settings))
}

// Nobody is told to pause by mistake.
func TestPauseOfAProcessThatIsNotThere(t *testing.T) {
	t.Parallel()
	settings := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	code, out := run(t, settings, "migrate")
	require.Zero(t, code, out)
	code, out = run(t, settings, "workers", "pause", "7", "8")
	require.NotZero(t, code, out)
	require.Contains(t, out, "there is no process 7: it has ended, or never was")
	require.Contains(t, out, "there is no process 8")
	for _, args := range [][]string{{"workers", "drain"}, {"workers", "resume", "7", "--all"}} {
		code, out = run(t, settings, args...)
		require.NotZero(t, code, out)
		require.Contains(t, out, "Give their ids, as 'tideline ps' lists them, or --all")
	}
	code, out = run(t, settings, "workers", "pause", "--all")
	require.Zero(t, code, out)
	require.Contains(t, out, "There is no process with workers.")
}

// An operator changes sizes of processes while they work: a pool that has grown does at once
// what waited, one that has shrunk finishes what it does. Posts arrive all the same.
func TestProcessesAreScaled(t *testing.T) {
	t.Parallel()
	needClients(t)
	stores := storagetest.Real(t)
	settings := shared(stores)
	server := start(t, settings, "server", "--addr=127.0.0.1:0", "--large-audience=500")
	worker := start(t, settings, "worker", "--worker-addr=127.0.0.1:0", "--small-workers=3")
	command := func(code int, want string, args ...string) {
		t.Helper()
		got, out := run(t, settings, args...)
		require.Equal(t, code, got, out)
		require.Regexp(t, want, out)
	}
	var processes []listed
	server.await("both are listed", func() bool {
		processes = fleet(t, settings)
		return len(processes) == 2
	})
	serves, works := strconv.FormatInt(processes[0].ID, 10), strconv.FormatInt(processes[1].ID, 10)
	require.Len(t, processes[0].Sizes, 1)
	require.Equal(t, 500, processes[0].Sizes["largeAudience"].Now)
	require.Len(t, processes[1].Sizes, 4)
	command(0, `(?m)^`+works+` .* 3/2/4 +3000 +- +running$`, "ps")
	command(0, `(?m)^`+serves+` .* - +- +500 +running$`, "ps")

	command(1, `--small-workers \(TIDELINE_SMALL_WORKERS\) is 0: it must be 1 to 1024; 'tideline workers pause'`, "workers", "scale", works, "--small=0")
	command(1, `--fan-out-page \(TIDELINE_FAN_OUT_PAGE\) is 99: it must be 100 to 30000`, "workers", "scale", works, "--page=99")
	command(1, "which size", "workers", "scale", works)
	command(1, "--reset goes without sizes", "workers", "scale", works, "--reset", "--page=100")
	command(1, "Give their ids", "workers", "scale", "--page=100")
	command(1, `\(server\) has no smallWorkers`, "workers", "scale", serves, "--small=5")
	command(1, "there is no process 7", "workers", "scale", "7", "--small=5")
	for _, p := range fleet(t, settings) {
		for name, size := range p.Sizes {
			require.Equal(t, size.Configured, size.Now, name)
			require.Equal(t, size.Configured, size.Wanted, name)
		}
	}

	ann, ben := signUp(t, server, "ann"), signUp(t, server, "ben")
	ben.follow(t, server, ann)
	client := ben.subscribe(t, server, modern)
	server.subscribed(1)
	ann.post(t, server, "one")
	client.received("one")
	command(0, `Process `+works+` on .* has 1 small workers \(configured: 3\), 2 large workers, 4 relation workers, pages of 200 followers \(configured: 3000\)\.`,
		"workers", "scale", works, "--small=1", "--page=200", "--note=a test")
	command(0, "told so before", "workers", "scale", works, "--small=1")

	// The fan-outs stop at the followers, whom they cannot read.
	tx, err := stores.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	// On a busy machine the commands below take longer than a transaction may be idle.
	_, err = tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE follows IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	underWay := func() int { // as the worker said last
		for _, p := range fleet(t, settings) {
			if p.ID == processes[1].ID {
				return p.Jobs
			}
		}
		return 0
	}
	for _, text := range []string{"two", "three", "four"} {
		ann.post(t, server, text)
	}
	worker.await("one fan-out waits", func() bool { return underWay() == 1 })
	command(0, `has 24 small workers \(configured: 3\).*\. Its 30 jobs at once share 20 connections to PostgreSQL\.`, "workers", "scale", works, "--small=24")
	worker.await("all fan-outs wait", func() bool { return underWay() == 3 })
	command(0, "has 1 small workers", "workers", "scale", "--all", "--small=1")
	worker.await("they go on", func() bool { return underWay() == 3 })
	require.NoError(t, tx.Rollback())
	ben.arrived(t, server, "four", "three", "two", "one")

	command(0, `(?s)large fan-outs from 2 followers \(configured: 500\)`, "workers", "scale", "--all", "--large-from=2")
	command(0, `(?s)has large fan-outs from 500 followers\..*has 3 small workers, 2 large workers, 4 relation workers, pages of 3000 followers\.|`+
		`has 3 small workers, 2 large workers, 4 relation workers, pages of 3000 followers\..*has large fan-outs from 500 followers\.`, "workers", "scale", "--all", "--reset")
	ann.post(t, server, "five")
	ben.arrived(t, server, "five", "four", "three", "two", "one")

	// One that never hears of it, and one of an earlier version.
	workers := `{"smallWorkers": {"now": 8, "configured": 8}, "largeWorkers": {"now": 2, "configured": 2}, "relationWorkers": {"now": 4, "configured": 4}}`
	for id, sizes := range map[int]any{7: workers, 8: nil} {
		_, err = stores.SQL.ExecContext(t.Context(), `INSERT INTO processes (id, host, pid, version, roles, started_at, seen_at, subscriptions, jobs, paused, sizes)
			VALUES ($1, 'h', 1, '0.9.0', 'workers', now(), now(), 0, 0, false, $2)`, id, sizes)
		require.NoError(t, err)
	}
	command(1, `not done after 1s: \[7\]`, "workers", "scale", "7", "--small=9", "--wait=1s")
	command(0, `(?m)^7 .* 8→9/2/4 `, "ps")
	command(1, `process 8 on h runs version 0.9.0: its version has no sizes`, "workers", "scale", "8", "--small=9")
	command(1, `(?s)has 9 small workers.*process 8 on h runs version 0.9.0`, "workers", "scale", works, "8", "--small=9")

	command(0, "ann has the role admin", "users", "role", "ann", "admin")
	var log struct {
		AuditLog struct {
			Nodes []struct{ Action, Note string }
		}
	}
	ann.call(t, server, `{ auditLog(first: 50) { nodes { action note } } }`, nil, &log)
	first := log.AuditLog.Nodes[len(log.AuditLog.Nodes)-1]
	require.Equal(t, []string{"SCALE_WORKERS", "fanOutPage 3000 → 200, smallWorkers 3 → 1; a test"}, []string{first.Action, first.Note})
	require.Zero(t, worker.stop())
	require.Zero(t, server.stop())
}
