package fleet

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/process"
	"tideline/feed/moderation"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m, func() error { return goleak.Find() }) }

// soon is long enough for an operation that takes milliseconds, even on a busy machine.
const soon = time.Minute

// testClock is a clock that the test sets.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// transcript collects log lines.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(p)
}

func (tr *transcript) count(line string) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return bytes.Count(tr.text.Bytes(), []byte(line))
}

// yard is a fleet with a test clock.
type yard struct {
	*Fleet
	t     *testing.T
	s     *storage.Stores
	clock *testClock
	log   *transcript
}

func newYard(t *testing.T, s *storage.Stores) *yard {
	c := &testClock{at: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	return &yard{New(s.DB, c.now), t, s, c, new(transcript)}
}

// member adds a process that has sent its first heartbeat. workers may be nil.
func (y *yard) member(serves bool, workers Workers) *Member {
	y.t.Helper()
	m := y.silent(serves, workers, nil)
	require.NoError(y.t, m.Renew(y.t.Context()))
	return m
}

// silent adds a process that has sent no heartbeat.
func (y *yard) silent(serves bool, workers Workers, tick <-chan time.Time) *Member {
	y.t.Helper()
	m, err := NewMember(Config{
		DB: y.s.DB, Version: "1.2.3", Server: serves, Workers: workers, Subscriptions: func() int { return 7 },
		Tick: tick, Now: y.clock.now, Logger: slog.New(slog.NewTextHandler(y.log, nil)),
	})
	require.NoError(y.t, err)
	return m
}

func (y *yard) queue() *queue.Queue {
	y.t.Helper()
	q, err := queue.New(y.s.DB, y.s.Redis, queue.Config{})
	require.NoError(y.t, err)
	return q
}

// states returns the states of the listed processes.
func (y *yard) states() (states []State) {
	y.t.Helper()
	list, err := y.List(y.t.Context())
	require.NoError(y.t, err)
	for _, p := range list {
		states = append(states, y.State(p))
	}
	return states
}

// A process is listed from its first heartbeat until it ends. Without heartbeats it is shown as
// gone, and forgotten after a day.
func TestProcessesAreListed(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		killed := y.member(false, y.queue())
		y.clock.pass(time.Second)
		tick := make(chan time.Time)
		m := y.silent(true, nil, tick)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		tick <- time.Time{}
		list, err := y.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, []int64{killed.ID(), m.ID()}, []int64{list[0].ID, list[1].ID})
		require.NotEqual(t, killed.ID(), m.ID())
		require.Equal(t, []string{"workers", "server"}, []string{list[0].Roles, list[1].Roles})
		require.Equal(t, []any{"1.2.3", m.row.Pid, 7, 0, false}, []any{list[1].Version, list[1].Pid, list[1].Subscriptions, list[1].Jobs, list[1].Paused})
		require.NotEmpty(t, list[1].Host)
		require.Equal(t, []State{Running, Running}, y.states())

		y.clock.pass(GoneAfter)
		for range 2 { // the second send waits for the end of the first renewal
			tick <- time.Time{}
		}
		require.Equal(t, []State{Gone, Running}, y.states())
		list, err = y.List(t.Context())
		require.NoError(t, err)
		require.True(t, list[1].SeenAt.Equal(y.clock.now()))
		require.True(t, list[1].StartedAt.Equal(y.clock.now().Add(-GoneAfter)))

		y.clock.pass(ForgetAfter + 1)
		for range 2 {
			tick <- time.Time{}
		}
		require.Equal(t, []State{Running}, y.states())
		end()
		require.NoError(t, <-ended)
		require.Empty(t, y.states())
		require.Zero(t, y.log.count("WARN"))
	})
}

// A pause reaches only its process, which reports it in the same renewal. The pause ends with the
// process.
func TestPauseReachesItsProcess(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		q, other := y.queue(), y.queue()
		m := y.member(true, q)
		y.clock.pass(time.Second)
		y.member(false, other)
		began, finish := make(chan struct{}), make(chan struct{})
		q.Handle("k", func(context.Context, *queue.Job) error { close(began); <-finish; return nil })
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- q.Run(ctx) }()
		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		require.NoError(t, q.Enqueue(t.Context(), tx, queue.Small, "k", nil))
		require.NoError(t, tx.Commit())
		<-began

		p, changed, err := y.Want(t.Context(), moderation.Console, m.ID(), process.WantedPause, "the disk is full")
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, m.ID(), p.ID)
		require.Equal(t, []State{Pausing, Running}, y.states())
		require.NoError(t, m.Renew(t.Context()))
		require.True(t, q.Paused())
		require.False(t, other.Paused())
		require.Equal(t, []State{Draining, Running}, y.states())
		_, changed, err = y.Want(t.Context(), moderation.Console, m.ID(), process.WantedPause, "")
		require.NoError(t, err)
		require.False(t, changed)

		close(finish)
		require.Eventually(t, func() bool { return q.UnderWay() == 0 }, soon, time.Millisecond)
		require.NoError(t, m.Renew(t.Context()))
		require.Equal(t, []State{Paused, Running}, y.states())

		_, err = s.DB.Process.Delete().Where(process.ID(m.ID())).Exec(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Renew(t.Context()))
		require.True(t, q.Paused(), "the pause outlasts the row")
		require.Equal(t, []State{Paused, Running}, y.states())
		y.member(true, y.queue())
		require.Contains(t, y.states(), Running, "the next start is another process")

		_, changed, err = y.Want(t.Context(), moderation.Console, m.ID(), process.WantedRun, "")
		require.NoError(t, err)
		require.True(t, changed)
		require.Contains(t, y.states(), Resuming)
		require.NoError(t, m.Renew(t.Context()))
		require.False(t, q.Paused())
		require.Equal(t, []State{Running, Running, Running}, y.states())
		stop()
		require.NoError(t, <-stopped)

		log, err := s.DB.AuditEntry.Query().Order(auditentry.ByID()).All(t.Context())
		require.NoError(t, err)
		require.Len(t, log, 2, "what changed nothing has no entry")
		for i, want := range []struct {
			action auditentry.Action
			note   string
		}{{auditentry.ActionPAUSE_WORKERS, "the disk is full"}, {auditentry.ActionRESUME_WORKERS, ""}} {
			require.Equal(t, []any{want.action, want.note, int64(0), auditentry.SubjectKindProcess, m.ID()},
				[]any{log[i].Action, log[i].Note, log[i].ActorID, log[i].SubjectKind, log[i].SubjectID})
		}
	})
}

// Want refuses a process that could not read the change.
func TestWantRefuses(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		gone := y.member(true, y.queue())
		y.clock.pass(GoneAfter)
		serves, works := y.member(true, nil), y.member(false, y.queue())
		for id, want := range map[int64]error{gone.ID(): ErrGone, serves.ID(): ErrNoWorkers, -1: ErrNoProcess} {
			_, _, err := y.Want(t.Context(), moderation.Console, id, process.WantedPause, "")
			require.ErrorIs(t, err, want)
		}
		_, _, err := y.Want(t.Context(), moderation.Console, works.ID(), process.WantedPause, string(make([]byte, 2000)))
		require.Error(t, err)
		require.Zero(t, s.DB.Process.Query().Where(process.WantedEQ(process.WantedPause)).CountX(t.Context()))
		require.Zero(t, s.DB.AuditEntry.Query().CountX(t.Context()))
	})
}

// Await reports each change, and the end of a process.
func TestAwaitSeesEachChange(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		q := y.queue()
		m := y.member(false, q)
		y.member(false, y.queue())
		step := 0
		require.NoError(t, y.Await(t.Context(), []int64{m.ID()}, func(list []*ent.Process) bool {
			step++
			switch step {
			case 1:
				require.Len(t, list, 1)
				require.False(t, list[0].Paused)
				q.Pause()
				_, _, err := y.Want(t.Context(), moderation.Console, m.ID(), process.WantedPause, "")
				require.NoError(t, err)
				require.NoError(t, m.Renew(t.Context()))
			case 2:
				require.True(t, list[0].Paused)
				m.leave(t.Context())
			}
			return len(list) == 0
		}))
		require.Equal(t, 3, step)
		ctx, stop := context.WithCancel(t.Context())
		require.ErrorIs(t, y.Await(ctx, nil, func([]*ent.Process) bool { stop(); return false }), context.Canceled)
	})
}

// While SQL fails, a process continues unchanged and logs that once.
func TestProcessGoesOnWithoutItsRow(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		y := newYard(t, s)
		rename := func(from, to string) {
			_, err := s.SQL.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
			require.NoError(t, err)
		}
		rename("processes", "away")
		q := y.queue()
		q.Pause()
		tick := make(chan time.Time)
		m := y.silent(true, q, tick)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		for range 3 {
			tick <- time.Time{}
		}
		require.True(t, q.Paused())
		require.Equal(t, 1, y.log.count("others do not hear of this process"))
		rename("away", "processes")
		for range 2 {
			tick <- time.Time{}
		}
		require.Equal(t, 1, y.log.count("others hear of this process again"))
		require.Equal(t, []State{Paused}, y.states())
		rename("processes", "away")
		end()
		require.NoError(t, <-ended, "it ends, though its row stays")
		require.Equal(t, 1, y.log.count("this process will be shown as gone"))
	})
}

// A PostgreSQL that stops answering does not keep a process from ending.
func TestSilentDatabaseHoldsUpNobody(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(storagetest.PostgresURL(t))
	require.NoError(t, err)
	proxy := storagetest.StartProxy(t, "tcp", u.Host)
	u.Host = proxy.Addr
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: u.String() + "&connect_timeout=1", StatementTimeout: 3 * time.Second})
	y := newYard(t, s)
	tick := make(chan time.Time)
	m := y.silent(true, nil, tick)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	tick <- time.Time{}
	require.Equal(t, []State{Running}, y.states())
	proxy.Silence(true)
	tick <- time.Time{}
	end()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(soon):
		t.Fatal("it waits for ever")
	}
	require.Equal(t, 1, y.log.count("this process will be shown as gone"))
}
