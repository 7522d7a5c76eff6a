// Package fleet knows which processes run. It brings them what an operator wants.
//
// What holds:
//
//   - Each process keeps a row by itself, with its last sign of life, and deletes it when
//     it ends in order. One that was killed is shown as gone, and forgotten after a day.
//   - A process neither waits for its row nor fails with it: while SQL is away it goes on
//     as it is.
//   - A pause is wanted of one process and ends with it: the next start is another process.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"tideline/ent"
	"tideline/ent/process"
)

const (
	// RenewEvery is how often a process gives a sign of life, and hears what is wanted.
	RenewEvery = 3 * time.Second
	// GoneAfter is how long after its last sign of life a process is shown as gone. The
	// clocks of machines may differ by some seconds.
	GoneAfter = 30 * time.Second
	// ForgetAfter is how long after its last sign of life the row of a process goes.
	ForgetAfter = 24 * time.Hour

	renewFor    = 5 * time.Second // at most
	leaveFor    = time.Second     // at most
	forgetEvery = time.Hour
)

// Workers can be paused. A queue.Queue is such.
type Workers interface {
	Pause()
	Resume()
	Paused() bool
	UnderWay() int // jobs; it does not rise during a pause
}

// Config says what there is to know of this process. Fields without a default are required.
type Config struct {
	DB      *ent.Client
	Version string
	// Server says that it answers clients, Subscriptions how many it serves.
	Server        bool
	Subscriptions func() int
	// Workers are those of this process; nil in one without.
	Workers Workers
	// Tick says when to give a sign of life. Defaults to each RenewEvery.
	Tick <-chan time.Time
	// Now defaults to time.Now.
	Now func() time.Time
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Member is this process, as the others see it.
type Member struct {
	cfg       Config
	row       ent.Process // what never changes of it
	forgotten time.Time   // when the rows of others were looked at
	away      bool        // as far as it is told in the log
}

// NewMember names this process. Run lets others know of it.
func NewMember(c Config) (*Member, error) {
	if c.DB == nil || c.Subscriptions == nil {
		return nil, errors.New("fleet: DB and Subscriptions are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Member{cfg: c, row: ent.Process{
		ID: 1 + rand.Int64N(1<<40), Host: host, Pid: os.Getpid(), Version: c.Version,
		Roles: roles(c.Server, c.Workers != nil), StartedAt: c.Now().UTC(),
	}}, nil
}

// ID names this process among all that share the database.
func (m *Member) ID() int64 { return m.row.ID }

// The values of the column roles.
const (
	server  = "server"
	workers = "workers"
	both    = server + "," + workers
)

func roles(serves, works bool) string {
	switch {
	case serves && works:
		return both
	case works:
		return workers
	default:
		return server
	}
}

// Run keeps the row until ctx ends, then deletes it. It never fails: what SQL refuses is
// told in the log.
//
// Cost: one statement by primary key each RenewEvery; an hour, one by index.
func (m *Member) Run(ctx context.Context) error {
	tick := m.cfg.Tick
	if tick == nil {
		ticker := time.NewTicker(RenewEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		_ = m.Renew(ctx) // it is in the log
		select {
		case <-ctx.Done():
			m.leave(context.WithoutCancel(ctx))
			return nil
		case <-tick:
		}
	}
}

// Renew gives a sign of life, and does what is wanted of the process, as Run does again and
// again. It tells the log when SQL does not take it, and when that is over. Error: of SQL.
func (m *Member) Renew(ctx context.Context) error {
	// The end of ctx does not interrupt it at once: a statement that SQL executes late would
	// bring the row back after its deletion.
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewFor)
	defer cancel()
	ended := context.AfterFunc(ctx, func() { time.AfterFunc(leaveFor, cancel) })
	defer ended()
	err := m.renew(trying)
	if err == nil && m.cfg.Now().Sub(m.forgotten) >= forgetEvery {
		err = m.forget(trying)
	}
	switch {
	case ctx.Err() != nil: // it ends
	case err != nil && !m.away:
		m.away = true
		m.cfg.Logger.WarnContext(ctx, "others do not hear of this process, nor it of what operators want; it goes on", "process", m.row.ID, "error", err)
	case err == nil && m.away:
		m.away = false
		m.cfg.Logger.InfoContext(ctx, "others hear of this process again", "process", m.row.ID)
	}
	return err
}

// renew writes the row until it says of the process what it does.
func (m *Member) renew(ctx context.Context) error {
	for {
		wanted, err := m.write(ctx)
		if err != nil {
			return fmt.Errorf("give a sign of life: %w", err)
		}
		w := m.cfg.Workers
		if w == nil || (wanted == process.WantedPause) == w.Paused() {
			return nil
		}
		if wanted == process.WantedPause {
			w.Pause()
			m.cfg.Logger.InfoContext(ctx, "the workers are paused", "process", m.row.ID)
		} else {
			w.Resume()
			m.cfg.Logger.InfoContext(ctx, "the workers take jobs again", "process", m.row.ID)
		}
	}
}

// write writes the row, and reads in the same round trip what is wanted. A row that is not
// there any more is made again, with what is wanted as this process knows it.
func (m *Member) write(ctx context.Context) (wanted process.Wanted, err error) {
	paused, jobs, wants := false, 0, process.WantedRun
	if w := m.cfg.Workers; w != nil {
		paused = w.Paused() // before the jobs: they do not rise any more
		jobs = w.UnderWay()
	}
	if paused {
		wants = process.WantedPause
	}
	found, err := m.cfg.DB.QueryContext(ctx, `INSERT INTO processes
		(id, host, pid, version, roles, started_at, seen_at, subscriptions, jobs, paused, wanted)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, subscriptions = excluded.subscriptions, jobs = excluded.jobs, paused = excluded.paused
		RETURNING wanted`,
		m.row.ID, m.row.Host, m.row.Pid, m.row.Version, m.row.Roles, m.row.StartedAt, m.cfg.Now().UTC(), m.cfg.Subscriptions(), jobs, paused, string(wants))
	if err != nil {
		return "", err
	}
	defer found.Close()
	for found.Next() {
		if err := found.Scan(&wanted); err != nil {
			return "", err
		}
	}
	return wanted, errors.Join(found.Err(), found.Close())
}

// forget deletes the rows of processes that are gone for long.
func (m *Member) forget(ctx context.Context) error {
	now := m.cfg.Now()
	if _, err := m.cfg.DB.Process.Delete().Where(process.SeenAtLT(now.Add(-ForgetAfter).UTC())).Exec(ctx); err != nil {
		return fmt.Errorf("forget processes: %w", err)
	}
	m.forgotten = now
	return nil
}

// leave deletes the row.
func (m *Member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveFor)
	defer cancel()
	if _, err := m.cfg.DB.Process.Delete().Where(process.ID(m.row.ID)).Exec(ctx); err != nil {
		m.cfg.Logger.WarnContext(ctx, "this process will be shown as gone", "process", m.row.ID, "error", err)
	}
}
