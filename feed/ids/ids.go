// Package ids makes ids: 53 bits that ascend with time, unique across all processes
// that share a database. LEASE.md has the protocol by which processes keep apart.
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

// Ids have 53 bits, so that a Redis score and a JavaScript number hold them
// exactly: 41 bits of the id clock, 5 of the writer, 7 of a sequence. The layout is
// Twitter's Snowflake, cut to what a double can hold.
//
// The id clock counts milliseconds since 2024. No server ran before 2026, so its first
// two years are for the posts of long ago that other servers had: until 2026 one step
// stands for 20 milliseconds, and the clock reaches back to Earliest. It ends in 2093.
const (
	writerBits   = 5
	sequenceBits = 7
	timeShift    = writerBits + sequenceBits
	writers      = 1 << writerBits
	sequences    = 1 << sequenceBits

	coarse    = 20 * time.Millisecond
	firstFine = 731 * 24 * 60 * 60 * 1000 // the step of fine
)

// fine is when steps of one millisecond begin.
var fine = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Earliest is the beginning of the id clock, in December 1985.
var Earliest = fine.Add(-firstFine * coarse)

// PerStep is how many ids there are of one step of the id clock.
const PerStep = 1 << timeShift

// ErrNoLease is returned while this process has no lease: all writer numbers are
// leased to others, or the database does not answer.
var ErrNoLease = errors.New("no lease on a writer number for new ids")

// TimeOf returns the time of the id: when it was made, to the millisecond, or that of a
// post of before 2026, rounded down to 20 of them.
func TimeOf(id int64) time.Time {
	step := id>>timeShift - firstFine
	if step < 0 {
		return fine.Add(time.Duration(step) * coarse)
	}
	return fine.Add(time.Duration(step) * time.Millisecond)
}

// At returns the smallest id of the step of the id clock in which t lies. It is below 0
// for a time before Earliest.
func At(t time.Time) int64 { return millis(t) << timeShift }

// millis is the reading of the id clock at t.
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

// Generator makes ids, unique across all processes that share the database and
// ascending within this one. It has a lease on one of 32 writer numbers. It never
// makes an id above the end of the lease nor below the end of the lease before it,
// so that a clock that steps back cannot repeat one. It is safe for concurrent use.
type Generator struct {
	renewing sync.Mutex // held by one Renew at a time
	db       *ent.Client
	now      func() time.Time
	log      *slog.Logger
	runOut   chan struct{} // wakes Run

	mu       sync.Mutex
	last     int64 // the last id made
	lease    lease
	leases   uint64 // how many it has taken
	refusing bool   // as far as it is told in the log
}

// Open takes a lease. It fails with ErrNoLease when all are taken. If they belong
// to killed processes, one is free within a minute.
//
// Cost: one query of at most 32 rows, and one statement by primary key for each
// number that another process takes at the same moment.
func Open(ctx context.Context, cfg Config) (*Generator, error) {
	g := &Generator{db: cfg.DB, now: cfg.Now, log: cfg.Logger, runOut: make(chan struct{}, 1)}
	if g.now == nil {
		g.now = time.Now
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if err := g.take(ctx); err != nil {
		return nil, fmt.Errorf("lease a writer number: %w", err)
	}
	return g, nil
}

// Next makes an id. It fails with ErrNoLease while there is no lease; Run, which it
// wakes then, takes one as soon as it can.
//
// Cost: none.
func (g *Generator) Next() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The ids overtake a clock that stands still or steps back: the sequence counts
	// on, into the next millisecond when it is full.
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

// clock is the millisecond of the next id, unless the sequence is full: that of the
// clock, or of the last id if that is later. G.mu is held.
func (g *Generator) clock() int64 { return max(millis(g.now()), g.last>>timeShift) }

// Ready fails with ErrNoLease while Next would.
func (g *Generator) Ready(context.Context) error {
	if !g.Stats().Ready {
		return ErrNoLease
	}
	return nil
}

// Stats says how a Generator fares.
type Stats struct {
	Ready  bool   // there is a lease
	Leases uint64 // how many were taken: 1 without a disturbance
}

// Stats returns the present figures.
func (g *Generator) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{Ready: g.clock() < g.lease.until, Leases: g.leases}
	if !s.Ready {
		g.wake()
	}
	return s
}

// wake has Run look after the lease now.
func (g *Generator) wake() {
	select {
	case g.runOut <- struct{}{}:
	default:
	}
}
