package webhook

import (
	"context"
	"time"

	"tideline/ent"
)

// Internals that tests use.
var (
	Schedule   = schedule
	ErrPrivate = errPrivate
	ErrNoSuch  = errNoEndpoint
	SignWith   = func(text, message string, at time.Time, body []byte) (string, error) {
		return sign([]secret{{Text: text}}, message, at, body)
	}
	SecretPrefix = secretPrefix
)

// Constants that tests use.
const (
	Lease       = lease
	PerEndpoint = perEndpoint
	KnownFor    = knownFor
	GiveUpAfter = giveUpAfter
	MaxAnswer   = maxAnswer
	PurgeBatch  = purgeBatch
)

// Round starts due attempts.
func (d *Deliverer) Round(ctx context.Context) error { return d.round(ctx) }

// Wait waits for all attempts.
func (d *Deliverer) Wait() { d.all.Wait() }

// Claim claims due deliveries, and sends nothing.
func (d *Deliverer) Claim(ctx context.Context, endpoint int64, room int) ([]*ent.WebhookDelivery, error) {
	return d.claim(ctx, endpoint, room)
}

// Purge deletes old deliveries, and reports whether there may be more.
func (d *Deliverer) Purge(ctx context.Context) (bool, error) { return d.purge(ctx) }

// Refresh looks for endpoints.
func (o *Outbox) Refresh(ctx context.Context) error { return o.refresh(ctx) }

// Attempt sends a claimed delivery.
func (d *Deliverer) Attempt(ctx context.Context, e *ent.WebhookEndpoint, row *ent.WebhookDelivery) {
	d.attempt(ctx, e, row)
}

// CheckURL checks an address.
func (r Reach) CheckURL(text string) error { return r.checkURL(text) }
