package ids

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/writer"
)

const (
	leaseFor   = time.Minute
	renewEvery = leaseFor / 4
	// retryEvery is the pause after a lease could neither be renewed nor taken, and
	// keepFor bounds each attempt: an answer that is later is worth nothing.
	retryEvery = time.Second
	keepFor    = renewEvery
)

// lease is the right to make ids with a writer number.
type lease struct {
	writer int64
	holder string // a name of its own: no late statement for another lease changes it
	until  int64  // its end, id milliseconds
}

// Run keeps a lease until ctx ends, then gives it back. It renews the lease, and takes
// another one when another process has taken the number.
//
// Cost: one update by primary key every 15 seconds; what Open costs, once a second,
// while there is no lease.
func (g *Generator) Run(ctx context.Context) error {
	next := time.NewTimer(renewEvery)
	defer next.Stop()
	for woken := g.runOut; ; {
		select {
		case <-ctx.Done():
			return g.release(context.WithoutCancel(ctx))
		case <-next.C:
		case <-woken:
		}
		if g.Renew(ctx) == nil {
			woken = g.runOut
			next.Reset(renewEvery)
		} else {
			woken = nil // however many ask for ids meanwhile
			next.Reset(retryEvery)
		}
	}
}

// Renew renews the lease, or takes another if the number belongs to another process, as
// Run does four times a minute. It tells the log when ids can no longer be made, and
// when they can again. Errors: ErrNoLease, or one of SQL.
//
// Cost: one update by primary key; what Open costs, if the lease is lost.
func (g *Generator) Renew(ctx context.Context) error {
	g.renewing.Lock()
	defer g.renewing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keepFor)
	defer cancel()
	held, err := g.renew(ctx)
	if err == nil && !held {
		if err = g.take(ctx); err == nil {
			g.log.WarnContext(ctx, "the number for new ids was taken by another process; this one has another now", "number", g.lease.writer)
		}
	}
	refusing := !g.Stats().Ready
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case refusing && !g.refusing:
		g.log.WarnContext(ctx, "no number for new ids: posts and sign-ups are refused", "error", err)
	case !refusing && g.refusing:
		g.log.InfoContext(ctx, "there is a number for new ids again", "number", g.lease.writer)
	}
	g.refusing = refusing
	return err
}

// renew puts the end of the lease off, and reports whether the number is still held.
// The end never comes nearer: an earlier renewal that the database executes late, when
// its caller has given it up, changes nothing.
func (g *Generator) renew(ctx context.Context) (held bool, err error) {
	g.mu.Lock()
	mine, until := g.lease, g.clock()+leaseFor.Milliseconds()
	g.mu.Unlock()
	until = max(until, mine.until+1)
	n, err := g.row(mine).Where(writer.UntilLT(until)).SetUntil(until).Save(ctx)
	if err != nil || n == 0 {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease.until = until
	return true, nil
}

// take takes a number that nobody ever had, or whose lease ran out longest ago: a
// process whose clock is ahead takes none that is held while there is another.
func (g *Generator) take(ctx context.Context) error {
	rows, err := g.db.Writer.Query().All(ctx)
	if err != nil {
		return err
	}
	for number := range int64(writers) {
		if !slices.ContainsFunc(rows, func(row *ent.Writer) bool { return row.ID == number }) {
			rows = append(rows, &ent.Writer{ID: number})
		}
	}
	slices.SortStableFunc(rows, func(a, b *ent.Writer) int { return cmp.Compare(a.Until, b.Until) })
	for _, row := range rows {
		if ok, err := g.claim(ctx, row); ok || err != nil {
			return err
		}
	}
	return ErrNoLease
}

// claim takes the number if its lease has run out, or if it has no holder and so never
// had one. The ids of the new lease begin above the end of the old one, and above the
// last id of this process.
func (g *Generator) claim(ctx context.Context, number *ent.Writer) (ok bool, err error) {
	g.mu.Lock()
	now, from := millis(g.now()), g.clock()+1
	g.mu.Unlock()
	l := lease{writer: number.ID, holder: rand.Text(), until: from + leaseFor.Milliseconds()}
	if number.Holder != "" {
		n, err := g.db.Writer.Update().Where(writer.ID(number.ID), writer.UntilLT(now)).
			SetHolder(l.holder).SetUntil(l.until).Save(ctx)
		if n == 0 || err != nil {
			return false, err
		}
	} else {
		// Another process that starts at the same time may insert the row first. That is no
		// error of the statement, which the log of PostgreSQL would have.
		err := g.db.Writer.Create().SetID(number.ID).SetHolder(l.holder).SetUntil(l.until).
			OnConflictColumns(writer.FieldID).DoNothing().Exec(ctx)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
		if ok, err := g.db.Writer.Query().Where(writer.ID(number.ID), writer.Holder(l.holder)).Exist(ctx); !ok || err != nil {
			return false, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Until now ids may have been made by the lease before.
	g.lease, g.last = l, max(from, g.last>>timeShift+1)<<timeShift
	g.leases++
	return true, nil
}

// release shortens the lease to the ids that were made.
func (g *Generator) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	g.mu.Lock()
	g.lease.until = g.last>>timeShift + 1
	mine := g.lease
	g.mu.Unlock()
	if _, err := g.row(mine).SetUntil(mine.until).Save(ctx); err != nil {
		return fmt.Errorf("give the writer number back: %w", err)
	}
	return nil
}

// row is the row of the lease, if it is still held.
func (g *Generator) row(l lease) *ent.WriterUpdate {
	return g.db.Writer.Update().Where(writer.ID(l.writer), writer.Holder(l.holder))
}
