package feed

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
// exactly: 41 bits of milliseconds since idEpoch, 5 of the writer, 7 of a
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

var idEpoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrNoWriter is returned when all writer numbers are leased to running
// processes, or when this process could not renew its own lease.
var ErrNoWriter = errors.New("no lease on a writer number for new ids")

// TimeOf is when the id was made, to the millisecond.
func TimeOf(id int64) time.Time {
	return idEpoch.Add(time.Duration(id>>timeShift) * time.Millisecond)
}

// IDAt is the smallest id made at t or later.
func IDAt(t time.Time) int64 { return idMillis(t) << timeShift }

func idMillis(t time.Time) int64 { return t.Sub(idEpoch).Milliseconds() }

// IDs makes ids, unique across all processes that share the database and
// ascending within this one. It holds a lease on one of 32 writer numbers; it
// never makes an id above the end of the lease nor below the end of the lease
// before it, so that a clock that steps back cannot repeat one.
type IDs struct {
	db     *ent.Client
	now    func() time.Time
	holder string
	writer int64

	mu    sync.Mutex
	last  int64 // the last id made
	until int64 // end of the lease, id milliseconds
}

// OpenIDs takes a lease. It fails with ErrNoWriter when all are taken, which
// passes within a minute if they belong to processes that were killed.
//
// Cost: two statements for each number that is taken, by primary key.
func OpenIDs(ctx context.Context, db *ent.Client) (*IDs, error) {
	ids := &IDs{db: db, now: time.Now, holder: rand.Text()}
	first := mathrand.Int64N(writers)
	for i := range int64(writers) {
		ids.writer = (first + i) % writers
		if ok, err := ids.claim(ctx); err != nil {
			return nil, fmt.Errorf("lease a writer number: %w", err)
		} else if ok {
			return ids, nil
		}
	}
	return nil, ErrNoWriter
}

// claim takes the writer number if its lease has run out or nobody ever had it.
func (ids *IDs) claim(ctx context.Context) (bool, error) {
	now := idMillis(ids.now())
	until := now + leaseFor.Milliseconds()
	n, err := ids.db.Writer.Update().
		Where(writer.ID(ids.writer), writer.UntilLT(now)).
		SetHolder(ids.holder).SetUntil(until).Save(ctx)
	if err != nil {
		return false, err
	}
	if n == 0 {
		err := ids.db.Writer.Create().SetID(ids.writer).SetHolder(ids.holder).SetUntil(until).Exec(ctx)
		if ent.IsConstraintError(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	ids.last, ids.until = now<<timeShift, until
	return true, nil
}

// Run renews the lease until ctx ends, then gives it back.
//
// Cost: one update by primary key a renewal.
func (ids *IDs) Run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ids.release(context.WithoutCancel(ctx))
		case <-tick.C:
			// A failure to renew shows itself in Next once the lease has run out.
			_ = ids.renew(ctx)
		}
	}
}

func (ids *IDs) renew(ctx context.Context) error {
	ids.mu.Lock()
	until := max(idMillis(ids.now())+leaseFor.Milliseconds(), ids.until)
	ids.mu.Unlock()
	n, err := ids.mine().SetUntil(until).Save(ctx)
	if err != nil || n == 0 {
		return errors.Join(ErrNoWriter, err)
	}
	ids.mu.Lock()
	ids.until = until
	ids.mu.Unlock()
	return nil
}

// release shortens the lease to the ids that were really made.
func (ids *IDs) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ids.mu.Lock()
	ids.until = ids.last>>timeShift + 1
	until := ids.until
	ids.mu.Unlock()
	if _, err := ids.mine().SetUntil(until).Save(ctx); err != nil {
		return fmt.Errorf("give the writer number back: %w", err)
	}
	return nil
}

func (ids *IDs) mine() *ent.WriterUpdate {
	return ids.db.Writer.Update().Where(writer.ID(ids.writer), writer.Holder(ids.holder))
}

// Next makes an id. It fails with ErrNoWriter when the lease has run out, and
// always when ids is nil, which is what a command has that only looks.
//
// Cost: none, but for a wait of a millisecond when one has run out of ids.
func (ids *IDs) Next() (int64, error) {
	if ids == nil {
		return 0, ErrNoWriter
	}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	// A clock that stands still or steps back is overtaken: the sequence counts
	// on, into the next millisecond when it is full.
	ms := max(idMillis(ids.now()), ids.last>>timeShift)
	seq := int64(0)
	if ms == ids.last>>timeShift {
		if seq = ids.last%sequences + 1; seq == sequences {
			ms, seq = ms+1, 0
		}
	}
	if ms >= ids.until {
		return 0, ErrNoWriter
	}
	ids.last = ms<<timeShift | ids.writer<<sequenceBits | seq
	return ids.last, nil
}
