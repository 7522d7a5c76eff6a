package webhook

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/predicate"
	"tideline/ent/webhookdelivery"
	"tideline/feed/internal/rows"
	"tideline/internal/clock"
	"tideline/internal/errs"
)

// ListOptions selects deliveries. A field with its zero value excludes nothing.
type ListOptions struct {
	Endpoint int64
	State    string // PENDING, DELIVERED or DEAD
	Failing  bool   // only those whose last attempt failed
	Before   int64  // only ids below this one
	Limit    int    // 1 to 1000; defaults to 100
}

// Deliveries returns deliveries, the newest first.
//
// Cost: one query in the order of ids, which also reads the deliveries that do not match.
func (d *Deliverer) Deliveries(ctx context.Context, o ListOptions) ([]*ent.WebhookDelivery, error) {
	o.Limit = cmp.Or(o.Limit, 100)
	if o.Limit < 1 || o.Limit > 1000 {
		return nil, fmt.Errorf("list deliveries: limit is %d: it must be 1 to 1000", o.Limit)
	}
	q := d.cfg.DB.WebhookDelivery.Query().Order(ent.Desc(webhookdelivery.FieldID)).Limit(o.Limit)
	if o.Before != 0 {
		q.Where(webhookdelivery.IDLT(o.Before))
	}
	if o.Endpoint != 0 {
		q.Where(webhookdelivery.EndpointID(o.Endpoint))
	}
	if o.State != "" {
		q.Where(webhookdelivery.State(o.State))
	}
	if o.Failing {
		q.Where(webhookdelivery.LastErrorNEQ(""))
	}
	list, err := q.All(ctx)
	return list, errs.Wrap(err, "list deliveries")
}

// Replay sends deliveries again. With ids, it takes these deliveries; without, the pending and dead
// deliveries of the endpoint. A delivered or dead delivery becomes pending as if it were new, with the
// same webhook-id, and may arrive after later events of its subject. A pending delivery that waits for
// its next attempt becomes due now, in its order. Replay leaves out pending deliveries that are under way or due
// within a minute. It returns how many deliveries it changed.
func (d *Deliverer) Replay(ctx context.Context, endpoint int64, ids ...int64) (int, error) {
	which, again := predicate.WebhookDelivery(rows.Among(webhookdelivery.FieldID, ids)), []string{dead, delivered}
	if len(ids) == 0 {
		which, again = webhookdelivery.EndpointID(endpoint), []string{dead}
	}
	now := d.cfg.Now()
	// A claim ends within a lease, so a delivery that is due later is not under way.
	hurried, err := d.cfg.DB.WebhookDelivery.Update().Where(which, webhookdelivery.State(pending),
		webhookdelivery.DueAtGT(now.Add(lease).UnixMilli())).SetDueAt(now.UnixMilli()).Save(ctx)
	if err != nil {
		return 0, fmt.Errorf("hurry deliveries: %w", err)
	}
	n, err := d.cfg.DB.WebhookDelivery.Update().Where(which, webhookdelivery.StateIn(again...)).
		SetState(pending).SetAttempts(0).SetClaim(0).SetDueAt(now.UnixMilli()).SetRetrySince(now.UnixMilli()).SetEndedAt(0).Save(ctx)
	return hurried + n, errs.Wrap(err, "replay deliveries")
}

// Stats has the numbers of pending and dead deliveries.
type Stats struct {
	Pending, Dead int
	Oldest        time.Duration // age of the oldest pending delivery, 0 if there is none
}

// Stats counts the pending and dead deliveries.
//
// Cost: three queries by index over all pending and dead deliveries.
func (d *Deliverer) Stats(ctx context.Context) (s Stats, err error) {
	of := d.cfg.DB.WebhookDelivery.Query().Where(webhookdelivery.State(pending))
	if s.Pending, err = of.Clone().Count(ctx); err != nil {
		return s, fmt.Errorf("count webhooks: %w", err)
	}
	oldest, err := of.Order(ent.Asc(webhookdelivery.FieldID)).Select(webhookdelivery.FieldCreatedAt).First(ctx)
	if err == nil {
		s.Oldest = max(0, d.cfg.Now().Sub(time.UnixMilli(oldest.CreatedAt)))
	} else if !ent.IsNotFound(err) {
		return s, fmt.Errorf("find oldest webhook: %w", err)
	}
	s.Dead, err = d.cfg.DB.WebhookDelivery.Query().Where(webhookdelivery.State(dead)).Count(ctx)
	return s, errs.Wrap(err, "count webhooks")
}

const (
	// Deliveries are kept this long after they were delivered, or became dead.
	keepDelivered = 24 * time.Hour
	keepDead      = 30 * 24 * time.Hour
	// purgeBatch is the largest number of rows that one statement changes or deletes.
	purgeBatch = 1000
	// purgeEvery is the pause between purges. purgeAgain is the pause after a purge that left
	// something to do.
	purgeEvery = time.Minute
	purgeAgain = 100 * time.Millisecond
)

// purges calls purge periodically until ctx ends.
func (d *Deliverer) purges(ctx context.Context) {
	for {
		wait := purgeEvery
		more, err := d.purge(ctx)
		if more {
			wait = purgeAgain
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Logger.WarnContext(ctx, "old webhooks are not purged", "error", err)
		}
		if clock.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// purge deletes old deliveries, and the deliveries of removed endpoints. It gives up deliveries that
// have been due at a disabled endpoint for an hour longer than giveUpAfter. It changes at most
// purgeBatch rows per statement, and reports whether there may be more.
//
// Cost: two statements, and two queries for each endpoint that has deliveries. For each of these
// endpoints that is disabled or removed, another statement. All use an index.
func (d *Deliverer) purge(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, purgeEvery)
	defer cancel()
	now := d.cfg.Now()
	step := func(n int64, err error) error {
		more = more || n >= purgeBatch
		return err
	}
	for state, keep := range map[string]time.Duration{delivered: keepDelivered, dead: keepDead} {
		if err := step(d.deleteSome(ctx, "state = $1 AND ended_at < $2 ORDER BY ended_at", state, now.Add(-keep).UnixMilli())); err != nil {
			return more, err
		}
	}
	for id := int64(0); ; {
		if id, err = d.nextEndpoint(ctx, id); err != nil || id == 0 {
			return more, err
		}
		e, err := d.cfg.DB.WebhookEndpoint.Get(ctx, id)
		switch {
		case ent.IsNotFound(err):
			err = step(d.deleteSome(ctx, "endpoint_id = $1", id))
		case err == nil && e.DisabledAt > 0:
			err = step(d.giveUp(ctx, id, now.Add(-giveUpAfter-time.Hour).UnixMilli(), "the endpoint is disabled"))
		}
		if err != nil {
			return more, errs.Wrap(err, "purge webhooks")
		}
	}
}

// nextEndpoint returns the smallest endpoint id above after that has deliveries, even if the
// endpoint was removed. It returns 0 if there is none.
func (d *Deliverer) nextEndpoint(ctx context.Context, after int64) (int64, error) {
	ids, err := rows.IDs(ctx, d.cfg.DB, "SELECT endpoint_id AS id FROM webhook_deliveries WHERE endpoint_id > $1 ORDER BY endpoint_id LIMIT 1", after)
	if err != nil || len(ids) == 0 {
		return 0, errs.Wrap(err, "find endpoints of webhooks")
	}
	return ids[0], nil
}

// deleteSome deletes the first deliveries that match, at most purgeBatch.
func (d *Deliverer) deleteSome(ctx context.Context, match string, args ...any) (int64, error) {
	n, err := changed(d.cfg.DB.ExecContext(ctx, "DELETE FROM webhook_deliveries WHERE id IN ("+d.some(match)+")", args...))
	return n, errs.Wrap(err, "delete webhooks")
}

// giveUp makes an endpoint's pending deliveries dead that were due before a time in Unix
// milliseconds, at most purgeBatch.
func (d *Deliverer) giveUp(ctx context.Context, endpoint int64, before int64, why string) (int64, error) {
	n, err := changed(d.cfg.DB.ExecContext(ctx, "UPDATE webhook_deliveries SET state = $1, ended_at = $2, last_error = $3 WHERE id IN ("+
		d.some("endpoint_id = $4 AND state = $5 AND due_at < $6 ORDER BY due_at, id")+")",
		dead, d.cfg.Now().UnixMilli(), why, endpoint, pending, before))
	return n, errs.Wrap(err, "give up webhooks")
}

// some returns the query for the ids of the first deliveries that match. It skips rows that another
// process is changing.
func (d *Deliverer) some(match string) string {
	query := fmt.Sprintf("SELECT id FROM webhook_deliveries WHERE %s LIMIT %d", match, purgeBatch)
	if d.cfg.Dialect == dialect.Postgres {
		query += " FOR UPDATE SKIP LOCKED"
	}
	return query
}

func changed(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
