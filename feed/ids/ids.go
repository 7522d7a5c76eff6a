// Package ids makes ids of 53 bits that ascend with time. They are unique across all processes that
// share a database. LEASE.md describes the lease protocol that keeps processes apart.
package ids

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tideline/ent"
)

// Ids have 53 bits, so that a Redis score and a JavaScript number represent them exactly: 41 bits
// of the id clock, 5 bits of the writer number and 7 bits of a sequence. The layout is Twitter's
// Snowflake, cut to the precision of a double.
//
// The id clock counts milliseconds since 2024. No server ran before 2026, so ids of the first two
// years are for older posts that other servers send. Before 2026, one step of the clock stands for
// 20 milliseconds, so the clock reaches back to Earliest. The clock ends in 2093.
const (
	writerBits   = 5
	sequenceBits = 7
	timeShift    = writerBits + sequenceBits
	writers      = 1 << writerBits
	sequences    = 1 << sequenceBits

	coarse    = 20 * time.Millisecond
	firstFine = 731 * 24 * 60 * 60 * 1000 // id clock reading at fine
)

// fine is the time from which steps of the id clock are one millisecond.
var fine = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Earliest is the first time on the id clock, in December 1985.
var Earliest = fine.Add(-firstFine * coarse)

// PerStep is the number of ids in one step of the id clock.
const PerStep = 1 << timeShift

// ErrNoLease is returned while this process has no lease, because all writer numbers are leased to
// others or the database does not answer.
var ErrNoLease = errors.New("no lease on a writer number for new ids")

// TimeOf returns the time at which an id was made, to the millisecond. For an older post, it
// returns the time of the post, rounded down to 20 milliseconds.
func TimeOf(id int64) time.Time {
	step := id>>timeShift - firstFine
	if step < 0 {
		return fine.Add(time.Duration(step) * coarse)
	}
	return fine.Add(time.Duration(step) * time.Millisecond)
}

// At returns the smallest id of the step of the id clock that contains t. It is negative for a time
// before Earliest.
func At(t time.Time) int64 { return millis(t) << timeShift }

// millis returns the reading of the id clock at t.
func millis(t time.Time) int64 {
	since := t.Sub(fine)
	if since < 0 {
		return firstFine - int64((coarse-1-since)/coarse)
	}
	return firstFine + since.Milliseconds()
}

// Config configures a Generator. Fields without a default are required.
type Config struct {
	DB *ent.Client
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Generator makes ids that are unique across all processes that share the database, and that ascend
// within this process. It holds a lease on one of 32 writer numbers. It never makes an id above the
// end of its lease, or below the end of the previous lease on the number, so a clock that steps
// back cannot repeat an id. It is safe for concurrent use.
type Generator struct {
	renewing sync.Mutex // held by one Renew at a time
	db       *ent.Client
	now      func() time.Time
	log      *slog.Logger
	runOut   chan struct{} // wakes Run

	mu       sync.Mutex
	last     int64 // the last id made
	lease    lease
	leases   uint64 // number of leases taken
	refusing bool   // as last logged
}

// New returns a Generator without a lease. Lease takes one.
func New(cfg Config) *Generator {
	g := &Generator{db: cfg.DB, now: cfg.Now, log: cfg.Logger, runOut: make(chan struct{}, 1)}
	if g.now == nil {
		g.now = time.Now
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g
}

// Open returns a Generator with a lease. Its errors and its cost are the same as for Lease.
func Open(ctx context.Context, cfg Config) (*Generator, error) {
	g := New(cfg)
	if err := g.Lease(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// Lease takes the first lease. It must be called before Run. It fails with ErrNoLease when all
// numbers are taken. If killed processes hold them, one becomes free within a minute.
//
// Cost: one query of at most 32 rows, and one statement by primary key for each number that another
// process takes at the same time.
func (g *Generator) Lease(ctx context.Context) error {
	if err := g.take(ctx); err != nil {
		return fmt.Errorf("lease a writer number: %w", err)
	}
	return nil
}

// Next makes an id. While there is no lease, it fails with ErrNoLease and wakes Run, which takes a
// lease as soon as it can.
//
// Cost: none.
func (g *Generator) Next() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Ids may run ahead of a clock that stands still or steps back. The sequence continues, and
	// carries into the next millisecond when it is full.
	ms, seq := g.clock(), int64(0)
	if ms == g.last>>timeShift {
		if seq = g.last%sequences + 1; seq == sequences {
			ms, seq = ms+1, 0
		}
	}
	if ms >= g.lease.until {
		g.wake()
		return 0, ErrNoLease
	}
	g.last = ms<<timeShift | g.lease.writer<<sequenceBits | seq
	return g.last, nil
}

// clock returns the millisecond of the next id, unless the sequence is full: the later of the clock
// and the last id. The caller holds g.mu.
func (g *Generator) clock() int64 { return max(millis(g.now()), g.last>>timeShift) }

// Ready returns ErrNoLease when Next would.
func (g *Generator) Ready(context.Context) error {
	if !g.Stats().Ready {
		return ErrNoLease
	}
	return nil
}

// Stats describes the state of a Generator.
type Stats struct {
	Ready  bool   // there is a lease
	Leases uint64 // number of leases taken; 1 in normal operation
}

// Stats returns the current state. Without a lease, it wakes Run.
func (g *Generator) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{Ready: g.clock() < g.lease.until, Leases: g.leases}
	if !s.Ready {
		g.wake()
	}
	return s
}

// wake makes Run renew the lease now.
func (g *Generator) wake() {
	select {
	case g.runOut <- struct{}{}:
	default:
	}
}
