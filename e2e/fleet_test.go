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

// listed is a process in the output of "tideline ps --json".
type listed struct {
	ID           int64
	Roles, State string
	Jobs         int
}

// fleet returns the processes that "tideline ps" lists.
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

// outstanding matches the line about jobs that "tideline ps" prints below the table.
var outstanding = regexp.MustCompile(`Jobs outstanding: (\d+), the oldest for (\S+)\.`)

// An operator pauses a worker: the worker finishes its job and takes no other. New posts are
// accepted. They arrive when the worker is resumed, without a restart.
func TestWorkersArePaused(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
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
	client := ben.subscribe(t, server)
	server.subscribed(1)
	ann.post(t, server, "one")
	client.received("one")

	// The lock blocks the fan-out when it reads the followers.
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
	command(1, `(?s)nothing to change.*under way.*not done after 1s`, "workers", "drain", id, "--wait=1s")
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
				Action, Note       string
				ActorID, ProcessID *string
			}
		}
	}
	ann.call(t, server, `{ auditLog(first: 3) { nodes { action note actorId processId } } }`, nil, &log)
	require.Equal(t, []string{"RESUME_WORKERS", "PAUSE_WORKERS", "a new disk"},
		[]string{log.AuditLog.Nodes[1].Action, log.AuditLog.Nodes[2].Action, log.AuditLog.Nodes[2].Note})
	require.Nil(t, log.AuditLog.Nodes[1].ActorID)
	require.Equal(t, &id, log.AuditLog.Nodes[1].ProcessID)

	require.Zero(t, worker.stop())
	require.Len(t, fleet(t, settings), 1)
	command(1, "there is no process "+id, "workers", "resume", id)
	require.Zero(t, server.stop())
	require.Empty(t, fleet(t, settings))
}

// The workers commands refuse unknown processes and ambiguous arguments.
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
		require.Contains(t, out, "give either ids (see 'tideline ps') or --all")
	}
	code, out = run(t, settings, "workers", "pause", "--all")
	require.Zero(t, code, out)
	require.Contains(t, out, "No process with workers was reached.")
}
