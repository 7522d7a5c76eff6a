// Package webhook tells other servers about changes. It records events, and delivers them to the
// endpoints that ask for them. WEBHOOKS.md describes the protocol.
//
// Invariants:
//
//   - An event is recorded in the transaction of its change, or not at all.
//   - It is delivered at least once, or given up after three days and kept for a replay.
//     The webhook-id is the same each time.
//   - Events of one subject reach an endpoint in their order. An event that fails holds up
//     the later events of its subject at its endpoint, and nothing else.
//   - No change waits for a receiver. Without an endpoint no change costs a statement.
//   - Nothing is sent to a private address, or without TLS, unless the operator allows it.
//
// The package does not decide who may see what: an operator's endpoint receives everything.
package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/ent/webhookendpoint"
	"tideline/internal/clock"
	"tideline/internal/errs"
	"tideline/internal/pipeline"
)

const (
	// refreshEvery is how often a process looks for endpoints. knownFor is how long it relies on
	// the result.
	refreshEvery = time.Second
	knownFor     = 5 * time.Second
)

// SettleTime is how long it takes until every process records all changes for an endpoint that was
// added. Of the changes before that, some are recorded.
const SettleTime = knownFor

// States of a delivery.
const (
	pending   = "PENDING"
	delivered = "DELIVERED"
	dead      = "DEAD"
)

// Outbox records events in the transactions of their changes. It is safe for concurrent
// use. A nil Outbox records nothing.
type Outbox struct {
	db    *ent.Client
	log   *slog.Logger
	now   func() time.Time
	known atomic.Pointer[knowledge]
}

// knowledge is whether SQL had an enabled endpoint, and when SQL was asked.
type knowledge struct {
	any   bool
	asked time.Time
}

// NewOutbox returns an Outbox. A nil log discards, and a nil now is time.Now. Until Run runs, each
// change costs one insert.
func NewOutbox(db *ent.Client, log *slog.Logger, now func() time.Time) *Outbox {
	if now == nil {
		now = time.Now
	}
	return &Outbox{db: db, log: cmp.Or(log, slog.New(slog.DiscardHandler)), now: now}
}

// Run looks once a second for endpoints, until ctx ends.
//
// Cost: one look-up in a table of a few rows each time.
func (o *Outbox) Run(ctx context.Context) error {
	refresh := func(ctx context.Context) {
		if err := o.refresh(ctx); err != nil && ctx.Err() == nil {
			o.log.WarnContext(ctx, "webhook endpoints not read: events are recorded as if there were some", "error", err)
		}
	}
	refresh(ctx)
	return clock.Every(ctx, refreshEvery, refresh)
}

func (o *Outbox) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownFor)
	defer cancel()
	asked := o.now() // before the query, which may miss later commits
	found, err := o.db.WebhookEndpoint.Query().Where(webhookendpoint.DisabledAt(0)).Exist(ctx)
	if err != nil {
		return err
	}
	o.known.Store(&knowledge{found, asked})
	return nil
}

// Wanted reports whether an endpoint may ask for events. It only reads memory. If the last look is
// too old, it returns true: the insert then finds the endpoints, if there are any.
func (o *Outbox) Wanted() bool {
	if o == nil {
		return false
	}
	known := o.known.Load()
	return known == nil || known.any || !clock.Within(knownFor, known.asked, o.now())
}

// event is a change to tell about.
type event struct {
	Type    string
	Subject string // events of one subject are delivered in their order
	Data    Data
}

// record records the event in tx. The caller has locked the event's subject, so that the ids of the
// subject's deliveries ascend in the order of the commits.
func (o *Outbox) record(ctx context.Context, tx *ent.Tx, e event) error {
	var insert pipeline.Pipeline
	err := o.recordWith(&insert, e)
	if err == nil {
		err = insert.Send(ctx, tx)
	}
	return errs.Wrap(err, "record "+e.Type)
}

// recordWith adds a statement to w that records the event for every enabled endpoint that asks for
// its type.
func (o *Outbox) recordWith(w *pipeline.Pipeline, e event) error {
	now := o.now()
	body, err := json.Marshal(payload{Type: e.Type, Version: Version, Timestamp: now.UTC().Truncate(time.Millisecond), Data: e.Data})
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.Type, err)
	}
	group, _, _ := strings.Cut(e.Type, ".")
	w.Exec("INSERT INTO webhook_deliveries (endpoint_id, message, type, subject, body, state, due_at, created_at, retry_since)"+
		" SELECT e.id, CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS text), CAST($5 AS text), CAST($6 AS bigint), CAST($6 AS bigint), CAST($6 AS bigint)"+
		" FROM webhook_endpoints e WHERE e.disabled_at = 0 AND (e.types LIKE CAST($7 AS text) OR e.types LIKE CAST($8 AS text))",
		newMessageID(), e.Type, e.Subject, string(body), pending, now.UnixMilli(), "%,"+e.Type+",%", "%,"+group+".*,%")
	return nil
}

func newMessageID() string { return "msg_" + rand.Text() }

// errNoEndpoint is returned for an endpoint that does not exist.
var errNoEndpoint = errors.New("there is no such endpoint")
