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

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/writer"
)

const (
	leaseFor   = time.Minute
	renewEvery = leaseFor / 4
	// retryEvery is the pause after a failure to renew or take a lease. keepFor bounds each
	// attempt, because a later answer is useless.
	retryEvery = time.Second
	keepFor    = renewEvery
)

// lease is the right to make ids with one writer number.
type lease struct {
	writer int64
	holder string // unique name: no late statement for another lease matches it
	until  int64  // end of the lease, in milliseconds of the id clock
}

// Run keeps a lease until ctx ends, then releases it. It renews the lease, and takes another if
// another process has taken the number.
//
// Cost: one update by primary key every 15 seconds. Without a lease, the cost of Lease once a
// second.
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
			woken = nil // requests for ids must not shorten the pause
			next.Reset(retryEvery)
		}
	}
}

// Hold takes a lease, and keeps it while fn runs. Errors: an error of Lease, of Run or of fn.
func (g *Generator) Hold(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := g.Lease(ctx); err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	leased, release := context.WithCancel(ctx)
	both.Go(func() error { return g.Run(leased) })
	both.Go(func() error {
		defer release()
		return fn(ctx)
	})
	return both.Wait()
}

// Renew renews the lease, or takes another if the number belongs to another process. Run calls it
// four times a minute. Renew logs when ids can no longer be made, and when they can again. Errors:
// ErrNoLease, or an error of SQL.
//
// Cost: one update by primary key; the cost of Lease if the lease is lost.
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

// renew moves the end of the lease later, and reports whether this process still holds the number.
// The end never moves earlier, so a previous renewal that the database executes late has no effect.
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

// take takes a number that was never used, or the one whose lease expired longest ago. A process
// whose clock is ahead thus takes a held number only if there is no other.
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

// claim takes the number if its lease has expired, or if it has no holder, which means that it was
// never used. The ids of the new lease begin above the end of the old lease and above the last id
// of this process.
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
		// Another process that starts at the same time may insert the row first. DO NOTHING keeps
		// that from being an error, which PostgreSQL would log.
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
	// The previous lease may have made more ids in the meantime.
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

// row returns an update that matches the row of the lease while this process holds the number.
func (g *Generator) row(l lease) *ent.WriterUpdate {
	return g.db.Writer.Update().Where(writer.ID(l.writer), writer.Holder(l.holder))
}
