package peers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	benchmeter "tideline/bench/meter"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// Environment variables of a server's process: which server it is, its stores, and
// the file for its CPU profile.
const (
	roleVariable     = "PEER_SERVER"
	databaseVariable = "PEER_DATABASE"
	redisVariable    = "PEER_REDIS"
	profileVariable  = "PEER_PROFILE"
)

// peer is a server to measure.
type peer struct {
	name             string
	binary, argument string // the command to run; no argument if it is empty
	role             string
	limits           bool // whether Tideline's limits on clients are on
}

// peersOf returns Tideline, the Tideline of -beside, and the others.
func peersOf(others ...string) []peer {
	self := os.Args[0]
	all := []peer{{name: "tideline", binary: self, role: "tideline"}}
	if *beside != "" {
		all = append([]peer{{name: "beside", binary: *beside, role: "tideline"}}, all...)
	}
	for _, role := range others {
		all = append(all, peer{name: role, binary: self, role: role})
	}
	return all
}

// process is a running server.
type process struct {
	role    string
	address string
	pid     int
}

// start runs the peer until the test ends, or until stop is called.
func (p peer) start(tb testing.TB, stores *storage.Stores) (_ process, stop func()) {
	cfg := storagetest.Config(stores)
	cmd := exec.Command(p.binary)
	if p.argument != "" {
		cmd.Args = append(cmd.Args, p.argument)
	}
	cmd.Env = append(os.Environ(), roleVariable+"="+p.role, databaseVariable+"="+cfg.DatabaseURL, redisVariable+"="+cfg.RedisURL,
		"TIDELINE_REQUEST_TIMEOUT=30s") // page times are measured on slow machines too
	if p.name != "tideline" {
		cmd.Env = append(cmd.Env, profileVariable+"=")
	}
	if p.role == "postgraphile" {
		cmd.Env = append(cmd.Env, "NODE_ENV=production", "GRAPHILE_ENV=production")
	}
	if !p.limits {
		cmd.Env = append(cmd.Env, "TIDELINE_RATE_LIMIT=off")
	}
	if *deflate {
		cmd.Env = append(cmd.Env, "TIDELINE_COMPRESS_SOCKETS=on")
	}
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	cmd.Stderr = os.Stderr
	require.NoError(tb, cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	tb.Cleanup(stop)
	lines, found := bufio.NewScanner(out), []string(nil)
	for found == nil {
		require.True(tb, lines.Scan(), "the server ended before it announced itself")
		found = regexp.MustCompile(`API +http://([^/]+)/`).FindStringSubmatch(lines.Text())
	}
	go io.Copy(io.Discard, out)
	return process{p.role, found[1], cmd.Process.Pid}, stop
}

// endPhase makes the process begin another profile, if it writes profiles.
func (p process) endPhase(of peer) {
	if of.name == "tideline" && os.Getenv(profileVariable) != "" {
		_ = syscall.Kill(p.pid, syscall.SIGUSR1)
		time.Sleep(time.Second) // the profile is written meanwhile
	}
}

// resident returns the resident memory of the process in KB.
func (p process) resident(tb testing.TB) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(tb, err)
	kb, err := strconv.ParseFloat(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindStringSubmatch(string(status))[1], 64)
	require.NoError(tb, err)
	return kb
}

// meter reads the processor time of a server and its stores.
type meter struct {
	tb                      testing.TB
	server, postgres, redis int // process ids
	began                   [3]time.Duration
}

func startMeter(tb testing.TB, stores *storage.Stores, p process) *meter {
	m := &meter{tb: tb, server: p.pid, postgres: postgresPid(tb, stores), redis: redisPid(tb, stores)}
	m.began = m.read()
	return m
}

func (m *meter) read() (used [3]time.Duration) {
	for i, pid := range []int{m.server, m.postgres, m.redis} {
		var err error
		used[i], err = benchmeter.WithChildren(pid)
		require.NoError(m.tb, err)
	}
	return used
}

// figures returns the processor time since the start, in µs per unit of work.
func (m *meter) figures(units int) []figure {
	now := m.read()
	each := func(i int) float64 { return float64((now[i] - m.began[i]).Microseconds()) / float64(units) }
	return []figure{{"server µs", each(0)}, {"PostgreSQL µs", each(1)}, {"Redis µs", each(2)}}
}

func postgresPid(tb testing.TB, stores *storage.Stores) int {
	var backend int
	require.NoError(tb, stores.SQL.QueryRowContext(tb.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	s, err := benchmeter.ReadProcess(backend)
	if err != nil {
		tb.Skip("processor times are read from /proc: ", err)
	}
	return s.Parent
}

func redisPid(tb testing.TB, stores *storage.Stores) int {
	info, err := stores.Redis.Info(tb.Context(), "server").Result()
	require.NoError(tb, err)
	pid, err := strconv.Atoi(regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(info)[1])
	require.NoError(tb, err)
	return pid
}
