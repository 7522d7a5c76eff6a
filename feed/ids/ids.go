// Package ids makes ids: 53 bits that ascend with time, unique across all processes
// that share a database. LEASE.md has the protocol by which processes keep apart.
package ids

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"tideline/ent"
	"tideline/ent/writer"
)

// Ids have 53 bits, so that a Redis score and a JavaScript number hold them
// exactly: 41 bits of milliseconds since Epoch, 5 of the writer, 7 of a
// sequence. The layout is Twitter's Snowflake, cut to what a double can hold.
// The range ends in 2093.
const (
	writerBits   = 5
	sequenceBits = 7
	timeShift    = writerBits + sequenceBits
	writers      = 1 << writerBits
	sequences    = 1 << sequenceBits

	leaseFor   = time.Minute
	renewEvery = leaseFor / 4
)

// Epoch is the beginning of the id clock.
var Epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrNoLease is returned when all writer numbers are leased to running
// processes, or when this process could not renew its own lease.
var ErrNoLease = errors.New("no lease on a writer number for new ids")

// TimeOf returns the time when the id was made, to the millisecond.
func TimeOf(id int64) time.Time {
	return Epoch.Add(time.Duration(id>>timeShift) * time.Millisecond)
}

// At returns the smallest id of the time t or later.
func At(t time.Time) int64 { return millis(t) << timeShift }

func millis(t time.Time) int64 { return t.Sub(Epoch).Milliseconds() }

// Generator makes ids, unique across all processes that share the database and
// ascending within this one. It has a lease on one of 32 writer numbers. It never
// makes an id above the end of the lease nor below the end of the lease before it,
// so that a clock that steps back cannot repeat one.
type Generator struct {
	db     *ent.Client
	now    func() time.Time
	holder string
	writer int64

	mu    sync.Mutex
	last  int64 // the last id made
	until int64 // end of the lease, id milliseconds
}

// Open takes a lease. It fails with ErrNoLease when all are taken. If they belong
// to killed processes, one is free within a minute.
//
// Cost: two statements for each number that is taken, by primary key.
func Open(ctx context.Context, db *ent.Client) (*Generator, error) { return OpenAt(ctx, db, time.Now) }

// OpenAt is Open with another clock.
func OpenAt(ctx context.Context, db *ent.Client, now func() time.Time) (*Generator, error) {
	g := &Generator{db: db, now: now, holder: rand.Text()}
	first := mathrand.Int64N(writers)
	for i := range int64(writers) {
		g.writer = (first + i) % writers
		if ok, err := g.claim(ctx); err != nil {
			return nil, fmt.Errorf("lease a writer number: %w", err)
		} else if ok {
			return g, nil
		}
	}
	return nil, ErrNoLease
}

// claim takes the writer number if its lease has run out or it never had one.
func (g *Generator) claim(ctx context.Context) (bool, error) {
	now := millis(g.now())
	until := now + leaseFor.Milliseconds()
	n, err := g.db.Writer.Update().
		Where(writer.ID(g.writer), writer.UntilLT(now)).
		SetHolder(g.holder).SetUntil(until).Save(ctx)
	if err != nil {
		return false, err
	}
	if n == 0 {
		err := g.db.Writer.Create().SetID(g.writer).SetHolder(g.holder).SetUntil(until).Exec(ctx)
		if ent.IsConstraintError(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	g.last, g.until = now<<timeShift, until
	return true, nil
}

// Run renews the lease until ctx ends, then gives it back.
//
// Cost: one update by primary key a renewal.
func (g *Generator) Run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return g.release(context.WithoutCancel(ctx))
		case <-tick.C:
			// A failure to renew appears in Next once the lease has run out.
			_ = g.Renew(ctx)
		}
	}
}

// Renew makes the lease last for a minute from now. It fails with ErrNoLease when
// another process has taken the number.
//
// Cost: one update by primary key.
func (g *Generator) Renew(ctx context.Context) error {
	g.mu.Lock()
	until := max(millis(g.now())+leaseFor.Milliseconds(), g.until)
	g.mu.Unlock()
	n, err := g.mine().SetUntil(until).Save(ctx)
	if err != nil || n == 0 {
		return errors.Join(ErrNoLease, err)
	}
	g.mu.Lock()
	g.until = until
	g.mu.Unlock()
	return nil
}

// release shortens the lease to the ids that were made.
func (g *Generator) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	g.mu.Lock()
	g.until = g.last>>timeShift + 1
	until := g.until
	g.mu.Unlock()
	if _, err := g.mine().SetUntil(until).Save(ctx); err != nil {
		return fmt.Errorf("give the writer number back: %w", err)
	}
	return nil
}

func (g *Generator) mine() *ent.WriterUpdate {
	return g.db.Writer.Update().Where(writer.ID(g.writer), writer.Holder(g.holder))
}

// Next makes an id. It fails with ErrNoLease when the lease has run out.
//
// Cost: none, but a wait of a millisecond when all ids of one are used.
func (g *Generator) Next() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The ids overtake a clock that stands still or steps back: the sequence counts
	// on, into the next millisecond when it is full.
	ms := max(millis(g.now()), g.last>>timeShift)
	seq := int64(0)
	if ms == g.last>>timeShift {
		if seq = g.last%sequences + 1; seq == sequences {
			ms, seq = ms+1, 0
		}
	}
	if ms >= g.until {
		return 0, ErrNoLease
	}
	g.last = ms<<timeShift | g.writer<<sequenceBits | seq
	return g.last, nil
}
