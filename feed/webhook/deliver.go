package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/webhookdelivery"
	"tideline/ent/webhookendpoint"
	"tideline/internal/errs"
)

const (
	// perEndpoint is how many deliveries to one endpoint a process has under way at a time.
	perEndpoint = 8
	// lease is how long a claim lasts. It is longer than an attempt and the storing of its result.
	lease = time.Minute
	// storeTimeout bounds the storing of an attempt's result.
	storeTimeout = 10 * time.Second
	// pollEvery is how often the deliverer looks for due deliveries.
	pollEvery = time.Second
	// maxRetryAfter bounds the delay that an answer may ask for.
	maxRetryAfter = 24 * time.Hour
)

// schedule holds the pauses before the attempts, as in the Standard Webhooks specification. Each
// pause begins at the end of the previous attempt. At most a tenth is added at random.
var schedule = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// giveUpAfter is the age from which an event is given up at its next failed attempt. An event that
// waited so long behind another event of its subject has no schedule of its own left.
const giveUpAfter = 76 * time.Hour

// Outcome is the result of an attempt.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered"
	Failed    Outcome = "failed" // it will be tried again
	GivenUp   Outcome = "given_up"
	Returned  Outcome = "returned" // the process stops, or the endpoint is gone
)

// Config configures a Deliverer. Fields without a default are required.
type Config struct {
	DB      *ent.Client
	Dialect string // of DB: dialect.SQLite or dialect.Postgres
	Reach   Reach
	// Observe is called after each attempt with its duration. Optional.
	Observe func(Outcome, time.Duration)
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock that decides when deliveries are due. Defaults to time.Now.
	Now func() time.Time
}

// Deliverer delivers events, and manages endpoints for operators. It is safe for concurrent use.
// Any number of processes may have one.
type Deliverer struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	active  map[int64]int  // deliveries under way, by endpoint
	failing map[int64]bool // endpoints whose last attempt here failed
	wake    chan struct{}  // has room for one signal: an attempt has ended
	all     sync.WaitGroup
}

// NewDeliverer returns a Deliverer. It fails when a required field is missing.
func NewDeliverer(cfg Config) (*Deliverer, error) {
	if cfg.DB == nil || cfg.Dialect == "" {
		return nil, errors.New("webhooks: DB and Dialect are required")
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Outcome, time.Duration) {}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Deliverer{
		cfg: cfg, client: cfg.Reach.client(), active: map[int64]int{}, failing: map[int64]bool{}, wake: make(chan struct{}, 1),
	}, nil
}

// Run delivers until ctx ends, and then hands back the deliveries that are under way. Once a minute
// it also deletes old deliveries.
//
// Cost: when idle, a query a second, and one more for each endpoint. A delivery costs its share of
// a claim of at most eight, and an update.
func (d *Deliverer) Run(ctx context.Context) error {
	defer d.all.Wait()
	d.all.Go(func() { d.purges(ctx) }) // a slow purge holds up no delivery
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if err := d.round(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Logger.WarnContext(ctx, "webhooks are not delivered", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-poll.C:
		}
	}
}

// round claims due deliveries, as far as there is room, and starts their attempts. It waits for no
// attempt.
func (d *Deliverer) round(ctx context.Context) error {
	endpoints, err := d.cfg.DB.WebhookEndpoint.Query().Where(webhookendpoint.DisabledAt(0)).All(ctx)
	if err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	for _, e := range endpoints {
		d.mu.Lock()
		room := perEndpoint - d.active[e.ID]
		d.mu.Unlock()
		if room <= 0 {
			continue
		}
		claimed, err := d.claim(ctx, e.ID, room)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.active[e.ID] += len(claimed)
		d.mu.Unlock()
		for _, c := range claimed {
			d.all.Go(func() {
				d.attempt(ctx, e, c)
				d.mu.Lock()
				if d.active[e.ID]--; d.active[e.ID] == 0 {
					delete(d.active, e.ID)
				}
				d.mu.Unlock()
				select {
				case d.wake <- struct{}{}:
				default: // a round is coming
				}
			})
		}
	}
	return nil
}

// claim takes due deliveries of an endpoint. It takes only the first pending delivery of each
// subject, so that a subject has one delivery under way at a time. No other process takes them
// before the lease ends.
func (d *Deliverer) claim(ctx context.Context, endpoint int64, room int) ([]*ent.WebhookDelivery, error) {
	lock := ""
	if d.cfg.Dialect == dialect.Postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	claim, now := rand.Int64N(1<<62)+1, d.cfg.Now()
	result, err := d.cfg.DB.ExecContext(ctx, "UPDATE webhook_deliveries SET claim = $1, due_at = $2 WHERE id IN ("+
		"SELECT w.id FROM webhook_deliveries w WHERE w.endpoint_id = $3 AND w.state = $4 AND w.due_at <= $5"+
		" AND NOT EXISTS (SELECT 1 FROM webhook_deliveries b WHERE b.endpoint_id = w.endpoint_id AND b.subject = w.subject"+
		" AND b.state = $4 AND b.id < w.id) ORDER BY w.due_at, w.id LIMIT $6"+lock+")",
		claim, now.Add(lease).UnixMilli(), endpoint, pending, now.UnixMilli(), room)
	if err != nil {
		return nil, fmt.Errorf("claim webhooks: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return nil, err
	}
	found, err := d.cfg.DB.WebhookDelivery.Query().Where(webhookdelivery.EndpointID(endpoint), webhookdelivery.State(pending),
		webhookdelivery.DueAt(now.Add(lease).UnixMilli()), webhookdelivery.Claim(claim)).Order(ent.Asc(webhookdelivery.FieldID)).All(ctx)
	return found, errs.Wrap(err, "read claimed webhooks")
}

// answer is the result of one request.
type answer struct {
	status     int // 0 without an answer
	retryAfter time.Duration
	err        error // nil if it was delivered
}

// attempt sends a delivery once, and stores the result.
func (d *Deliverer) attempt(ctx context.Context, e *ent.WebhookEndpoint, row *ent.WebhookDelivery) {
	if d.cfg.Now().UnixMilli() >= row.DueAt { // the process was stopped, and the claim has lapsed
		return
	}
	began := time.Now()
	a := d.post(ctx, e, row.Message, []byte(row.Body))
	stopped := ctx.Err() != nil && a.err != nil && a.status == 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	outcome, err := d.store(ctx, row, a, stopped)
	d.cfg.Observe(outcome, time.Since(began))
	if !stopped {
		d.note(ctx, e.ID, a.err)
	}
	if err != nil {
		d.cfg.Logger.WarnContext(ctx, "the end of a webhook's attempt is not stored: it comes again", "delivery", row.ID, "error", err)
	}
	if outcome == GivenUp {
		d.cfg.Logger.WarnContext(ctx, "webhook given up; see `tideline webhooks deliveries --state=dead`",
			"endpoint", row.EndpointID, "delivery", row.ID, "type", row.Type, "error", a.err)
	}
}

// note logs when an endpoint begins to fail, and when it works again.
func (d *Deliverer) note(ctx context.Context, endpoint int64, err error) {
	d.mu.Lock()
	failed := d.failing[endpoint]
	if d.failing[endpoint] = err != nil; err == nil {
		delete(d.failing, endpoint)
	}
	d.mu.Unlock()
	switch {
	case err != nil && !failed:
		d.cfg.Logger.WarnContext(ctx, "webhook endpoint fails; see `tideline webhooks deliveries --state=failing`", "endpoint", endpoint, "error", err)
	case err == nil && failed:
		d.cfg.Logger.InfoContext(ctx, "webhook endpoint is well again", "endpoint", endpoint)
	}
}

// post sends a body to an endpoint. It keeps only the status and Retry-After of the answer.
func (d *Deliverer) post(ctx context.Context, e *ent.WebhookEndpoint, message string, body []byte) answer {
	if err := d.cfg.Reach.checkURL(e.URL); err != nil {
		return answer{err: err}
	}
	now := d.cfg.Now()
	secrets, err := parseSecrets(e.Secrets)
	if err != nil {
		return answer{err: err}
	}
	signature, err := sign(secrets, message, now, body)
	if err != nil {
		return answer{err: err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Tideline-Webhooks/1")
	request.Header.Set("Webhook-Id", message)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	request.Header.Set("Webhook-Signature", signature)
	response, err := d.client.Do(request)
	if err != nil {
		return answer{err: errs.WithoutURL(err)}
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer) // reads the body, so that the connection can be reused
	a := answer{status: response.StatusCode}
	if a.status < 200 || a.status > 299 {
		a.err = fmt.Errorf("status %d", a.status)
		a.retryAfter = retryAfter(response.Header.Get("Retry-After"), d.cfg.Now())
	}
	return a
}

// retryAfter reads the header Retry-After, which has seconds or a date. It returns 0 for other
// texts and for past dates, and at most maxRetryAfter.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return max(0, time.Duration(min(seconds, int(maxRetryAfter/time.Second)))*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// store stores the result of an attempt, unless the claim was lost.
func (d *Deliverer) store(ctx context.Context, row *ent.WebhookDelivery, a answer, stopped bool) (Outcome, error) {
	now := d.cfg.Now()
	end := d.cfg.DB.WebhookDelivery.Update().Where(webhookdelivery.ID(row.ID), webhookdelivery.Claim(row.Claim), webhookdelivery.State(pending))
	if stopped {
		return Returned, end.SetDueAt(now.UnixMilli()).Exec(ctx)
	}
	attempts := row.Attempts + 1
	end.SetAttempts(attempts).SetStatus(a.status)
	if a.err == nil {
		return Delivered, end.SetState(delivered).SetLastError("").SetEndedAt(now.UnixMilli()).Exec(ctx)
	}
	end.SetLastError(firstBytes(a.err.Error(), 300))
	if a.status == http.StatusGone {
		if err := end.SetState(dead).SetEndedAt(now.UnixMilli()).Exec(ctx); err != nil {
			return GivenUp, err
		}
		return GivenUp, d.disable(ctx, row.EndpointID)
	}
	if attempts >= len(schedule) || now.Sub(time.UnixMilli(row.RetrySince)) >= giveUpAfter {
		return GivenUp, end.SetState(dead).SetEndedAt(now.UnixMilli()).Exec(ctx)
	}
	wait := schedule[attempts]
	due := now.Add(max(wait+rand.N(wait/10+1), a.retryAfter)).UnixMilli()
	if err := end.SetDueAt(due).Exec(ctx); err != nil {
		return Failed, err
	}
	// Later deliveries of the subject need not be looked at before then.
	_, err := d.cfg.DB.WebhookDelivery.Update().Where(webhookdelivery.EndpointID(row.EndpointID), webhookdelivery.Subject(row.Subject),
		webhookdelivery.State(pending), webhookdelivery.IDGT(row.ID), webhookdelivery.DueAtLT(due)).SetDueAt(due).Save(ctx)
	return Failed, errs.Wrap(err, "put off webhooks")
}

// disable disables an endpoint and gives up its pending deliveries.
func (d *Deliverer) disable(ctx context.Context, endpoint int64) error {
	now := d.cfg.Now().UnixMilli()
	_, err := d.cfg.DB.WebhookEndpoint.Update().Where(webhookendpoint.ID(endpoint), webhookendpoint.DisabledAt(0)).
		SetDisabledAt(now).SetDisabledWhy("410 Gone").Save(ctx)
	for n := int64(purgeBatch); err == nil && n >= purgeBatch; { // if ctx ends, purge gives up the rest
		n, err = d.giveUp(ctx, endpoint, math.MaxInt64, "the endpoint answered 410 Gone")
	}
	if err != nil {
		return errs.Wrap(err, "disable endpoint")
	}
	d.cfg.Logger.WarnContext(ctx, "webhook endpoint disabled: it answered 410 Gone; `tideline webhooks enable` has it told again", "endpoint", endpoint)
	return nil
}

// firstBytes returns the beginning of a text, without bytes that PostgreSQL cannot store.
func firstBytes(text string, most int) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), most)], "\x00", ""), "")
}
