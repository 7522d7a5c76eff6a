// Package fleet lists the running processes and delivers the wishes of operators to them, such as a
// pause of the workers.
//
// Invariants:
//
//   - Each process writes its own row with the time of its last heartbeat, and deletes the row when
//     it shuts down. A killed process is shown as gone, and its row is deleted after a day.
//   - A process never waits for its row or fails because of it. While SQL is down, it continues
//     unchanged.
//   - A pause belongs to one process and ends with it. After a restart, the process is a new one.
package fleet

import (
	"cmp"
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
	// RenewEvery is how often a process sends a heartbeat and reads what operators want.
	RenewEvery = 3 * time.Second
	// GoneAfter is how long after its last heartbeat a process is shown as gone. It allows for
	// machine clocks that differ by some seconds.
	GoneAfter = 30 * time.Second
	// ForgetAfter is how long after the last heartbeat the row of a process is deleted.
	ForgetAfter = 24 * time.Hour

	renewFor    = 5 * time.Second // at most
	leaveFor    = time.Second     // at most
	forgetEvery = time.Hour
)

// Workers can be paused. queue.Queue implements it.
type Workers interface {
	Pause()
	Resume()
	Paused() bool
	UnderWay() int // running jobs; does not rise during a pause
}

// Config describes this process. Fields without a default are required.
type Config struct {
	DB      *ent.Client
	Version string
	// Server says that the process answers clients. Subscriptions returns how many live
	// subscriptions it serves.
	Server        bool
	Subscriptions func() int
	// Workers are the workers of this process, or nil if it has none.
	Workers Workers
	// Tick triggers heartbeats. Defaults to a tick every RenewEvery.
	Tick <-chan time.Time
	// Now defaults to time.Now.
	Now func() time.Time
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Member is this process as a member of the fleet.
type Member struct {
	cfg       Config
	row       ent.Process // the fields that never change
	forgotten time.Time   // when old rows were last deleted
	away      bool        // SQL failed, as last logged
}

// NewMember chooses an id for this process. Other processes see it after Run begins.
func NewMember(c Config) (*Member, error) {
	if c.DB == nil || c.Subscriptions == nil {
		return nil, errors.New("fleet: DB and Subscriptions are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Member{cfg: c, row: ent.Process{
		ID: 1 + rand.Int64N(1<<40), Host: host, Pid: os.Getpid(), Version: c.Version,
		Roles: roles(c.Server, c.Workers != nil), StartedAt: c.Now().UTC(),
	}}, nil
}

// ID returns the id of this process, unique among all processes that share the database.
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

// Run keeps the row up to date until ctx ends, then deletes it. It always returns nil: errors of
// SQL are logged.
//
// Cost: one statement by primary key every RenewEvery, and one by index every hour.
func (m *Member) Run(ctx context.Context) error {
	tick := m.cfg.Tick
	if tick == nil {
		ticker := time.NewTicker(RenewEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		_ = m.Renew(ctx) // Renew logs the error
		select {
		case <-ctx.Done():
			m.leave(context.WithoutCancel(ctx))
			return nil
		case <-tick:
		}
	}
}

// Renew sends a heartbeat and applies what operators want. Run calls it repeatedly. Renew logs when
// SQL fails and when it works again, and returns the error of SQL.
func (m *Member) Renew(ctx context.Context) error {
	// The end of ctx cancels the statement only after leaveFor. A statement that SQL executes late
	// would insert the row again after its deletion.
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewFor)
	defer cancel()
	ended := context.AfterFunc(ctx, func() { time.AfterFunc(leaveFor, cancel) })
	defer ended()
	err := m.renew(trying)
	if err == nil && m.cfg.Now().Sub(m.forgotten) >= forgetEvery {
		err = m.forget(trying)
	}
	switch {
	case ctx.Err() != nil: // the process is shutting down
	case err != nil && !m.away:
		m.away = true
		m.cfg.Logger.WarnContext(ctx, "others do not hear of this process, nor it of what operators want; it goes on", "process", m.row.ID, "error", err)
	case err == nil && m.away:
		m.away = false
		m.cfg.Logger.InfoContext(ctx, "others hear of this process again", "process", m.row.ID)
	}
	return err
}

// renew writes the row, and again after each change of the workers, until the row describes their
// state.
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

// write writes the row, and reads in the same round trip what is wanted. If the row is gone, it
// inserts the row with the current state of the workers as wanted.
func (m *Member) write(ctx context.Context) (wanted process.Wanted, err error) {
	paused, jobs, wants := false, 0, process.WantedRun
	if w := m.cfg.Workers; w != nil {
		paused = w.Paused() // before UnderWay, which no longer rises once paused
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

// forget deletes the rows of processes without a heartbeat for ForgetAfter.
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
