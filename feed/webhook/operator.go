package webhook

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/predicate"
	"tideline/ent/webhookdelivery"
	"tideline/feed/internal/rows"
)

// ListOptions selects deliveries; a zero field selects all.
type ListOptions struct {
	Endpoint int64
	State    string // PENDING, DELIVERED or DEAD
	Failing  bool   // whose last attempt failed
	Before   int64  // ids below this one
	Limit    int    // 1 to 1000; defaults to 100
}

// Deliveries returns deliveries, the newest first.
//
// Cost: one query, of all that it passes over.
func (d *Deliverer) Deliveries(ctx context.Context, o ListOptions) ([]*ent.WebhookDelivery, error) {
	if o.Limit == 0 {
		o.Limit = 100
	}
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
	return list, rows.Wrap("list deliveries", err)
}

// Replay has deliveries that were given up, or have been delivered, tried again as if they
// were new, with the webhook-id that they had; without ids, all that the endpoint has given up.
// They may come after later events of their subject. What waits for its next attempt is tried
// now, in its order. It returns how many there are of both; those that are due within a minute,
// or under way, do not count.
func (d *Deliverer) Replay(ctx context.Context, endpoint int64, ids ...int64) (int, error) {
	which, again := predicate.WebhookDelivery(rows.Among(webhookdelivery.FieldID, ids)), []string{dead, delivered}
	if len(ids) == 0 {
		which, again = webhookdelivery.EndpointID(endpoint), []string{dead}
	}
	now := d.cfg.Now()
	// A claim ends within a lease: what is due later is not under way.
	hurried, err := d.cfg.DB.WebhookDelivery.Update().Where(which, webhookdelivery.State(pending),
		webhookdelivery.DueAtGT(now.Add(lease).UnixMilli())).SetDueAt(now.UnixMilli()).Save(ctx)
	if err != nil {
		return 0, fmt.Errorf("hurry deliveries: %w", err)
	}
	n, err := d.cfg.DB.WebhookDelivery.Update().Where(which, webhookdelivery.StateIn(again...)).
		SetState(pending).SetAttempts(0).SetClaim(0).SetDueAt(now.UnixMilli()).SetRetrySince(now.UnixMilli()).SetEndedAt(0).Save(ctx)
	return hurried + n, rows.Wrap("replay deliveries", err)
}

// Stats counts what is not delivered.
type Stats struct {
	Pending, Dead int
	Oldest        time.Duration // age of the oldest event that is pending, 0 when there is none
}

// Stats counts in SQL.
//
// Cost: three queries by index, of all that is pending or dead.
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
	return s, rows.Wrap("count webhooks", err)
}

const (
	// keepDelivered is how long what was delivered is shown, and keepDead how long what was
	// given up can be replayed.
	keepDelivered = 24 * time.Hour
	keepDead      = 30 * 24 * time.Hour
	// purgeBatch is how many rows one statement deletes.
	purgeBatch = 1000
)

// purge deletes what has been kept long enough, and what belongs to no endpoint; and it gives
// up what a disabled endpoint has not been sent for as long as an attempt may be put off.
func (d *Deliverer) purge(ctx context.Context) error {
	now := d.cfg.Now()
	late := now.Add(-giveUpAfter - time.Hour).UnixMilli()
	_, err := d.cfg.DB.ExecContext(ctx, "UPDATE webhook_deliveries SET state = $1, ended_at = $2, last_error = 'the endpoint is disabled'"+
		" WHERE state = $3 AND retry_since < $4 AND endpoint_id IN (SELECT id FROM webhook_endpoints WHERE disabled_at > 0)",
		dead, now.UnixMilli(), pending, late)
	if err != nil {
		return fmt.Errorf("give up webhooks: %w", err)
	}
	for _, old := range []struct {
		where string
		args  []any
	}{
		{"state = $1 AND ended_at < $2", []any{delivered, now.Add(-keepDelivered).UnixMilli()}},
		{"state = $1 AND ended_at < $2", []any{dead, now.Add(-keepDead).UnixMilli()}},
		{"endpoint_id NOT IN (SELECT id FROM webhook_endpoints)", nil},
	} {
		query := fmt.Sprintf("DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries WHERE %s LIMIT %d)", old.where, purgeBatch)
		for n := int64(purgeBatch); n == purgeBatch; {
			result, err := d.cfg.DB.ExecContext(ctx, query, old.args...)
			if err == nil {
				n, err = result.RowsAffected()
			}
			if err != nil {
				return fmt.Errorf("purge webhooks: %w", err)
			}
		}
	}
	return nil
}
