package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/webhookdelivery"
	"tideline/ent/webhookendpoint"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// MaxEndpoints is the largest number of endpoints.
const MaxEndpoints = 50

// Endpoint is an address that receives events, without its secrets.
type Endpoint struct {
	ID            int64
	URL           string
	Types         []string // empty: all
	Secrets       int      // how many are in force
	CreatedAt     time.Time
	DisabledAt    *time.Time // nil if it is enabled
	DisabledWhy   string
	Pending, Dead int // deliveries
	// LastError is the error of the newest pending delivery whose last attempt failed.
	LastError string
}

// Add adds an endpoint and returns it with its secret, which is not shown again. types has elements
// of Types, or groups such as post.*; none means all. The endpoint receives every event from
// SettleTime after the return of Add.
func (d *Deliverer) Add(ctx context.Context, url string, types []string) (*Endpoint, string, error) {
	if err := d.cfg.Reach.checkURL(url); err != nil {
		return nil, "", err
	}
	for _, t := range types {
		group, all := strings.CutSuffix(t, ".*")
		if !slices.Contains(Types, t) && (!all || !slices.Contains(Groups, group)) {
			return nil, "", fmt.Errorf("there are no events of type %q: there are %s, and %s.*", t, strings.Join(Types, ", "), strings.Join(Groups, ".*, "))
		}
	}
	if len(types) == 0 {
		for _, group := range Groups {
			types = append(types, group+".*")
		}
	}
	if n, err := d.cfg.DB.WebhookEndpoint.Query().Count(ctx); err != nil || n >= MaxEndpoints {
		if err == nil {
			err = fmt.Errorf("there are %d endpoints: remove one first", n)
		}
		return nil, "", err
	}
	text := newSecret()
	secrets, err := json.Marshal([]secret{{Text: text}})
	if err != nil {
		return nil, "", err
	}
	row, err := d.cfg.DB.WebhookEndpoint.Create().SetURL(url).SetTypes("," + strings.Join(types, ",") + ",").
		SetSecrets(string(secrets)).SetCreatedAt(d.cfg.Now().UnixMilli()).Save(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("add endpoint: %w", err)
	}
	e, err := d.endpoint(row)
	return e, text, err
}

// endpoint returns the Endpoint of a row.
func (d *Deliverer) endpoint(row *ent.WebhookEndpoint) (*Endpoint, error) {
	secrets, err := parseSecrets(row.Secrets)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		ID: row.ID, URL: row.URL, Types: strings.Split(strings.Trim(row.Types, ","), ","),
		CreatedAt: time.UnixMilli(row.CreatedAt), DisabledWhy: row.DisabledWhy,
	}
	for _, s := range secrets {
		if s.Until == 0 || s.Until > d.cfg.Now().UnixMilli() {
			e.Secrets++
		}
	}
	if row.DisabledAt != 0 {
		e.DisabledAt = new(time.UnixMilli(row.DisabledAt))
	}
	return e, nil
}

// Endpoints returns all endpoints, oldest first.
//
// Cost: it counts the deliveries that are pending or dead.
func (d *Deliverer) Endpoints(ctx context.Context) ([]*Endpoint, error) {
	found, err := d.cfg.DB.WebhookEndpoint.Query().Order(ent.Asc(webhookendpoint.FieldID)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	list := make([]*Endpoint, len(found))
	for i, row := range found {
		if list[i], err = d.endpoint(row); err != nil {
			return nil, err
		}
		for state, count := range map[string]*int{pending: &list[i].Pending, dead: &list[i].Dead} {
			if *count, err = d.cfg.DB.WebhookDelivery.Query().
				Where(webhookdelivery.EndpointID(row.ID), webhookdelivery.State(state)).Count(ctx); err != nil {
				return nil, fmt.Errorf("count deliveries: %w", err)
			}
		}
		list[i].LastError, err = d.cfg.DB.WebhookDelivery.Query().
			Where(webhookdelivery.EndpointID(row.ID), webhookdelivery.State(pending), webhookdelivery.LastErrorNEQ("")).
			Order(ent.Desc(webhookdelivery.FieldID)).Limit(1).Select(webhookdelivery.FieldLastError).String(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return nil, fmt.Errorf("read last error: %w", err)
		}
	}
	return list, nil
}

// Remove removes an endpoint and drops its pending deliveries.
func (d *Deliverer) Remove(ctx context.Context, id int64) error {
	n, err := d.cfg.DB.WebhookEndpoint.Delete().Where(webhookendpoint.ID(id)).Exec(ctx)
	if err == nil && n == 0 {
		return errNoEndpoint
	}
	return errs.Wrap(err, "remove endpoint")
}

// Enable enables a disabled endpoint. It receives every event from SettleTime after the return of
// Enable.
func (d *Deliverer) Enable(ctx context.Context, id int64) error {
	n, err := d.cfg.DB.WebhookEndpoint.Update().Where(webhookendpoint.ID(id)).SetDisabledAt(0).SetDisabledWhy("").Save(ctx)
	if err == nil && n == 0 {
		return errNoEndpoint
	}
	return errs.Wrap(err, "enable endpoint")
}

// Rotate gives an endpoint a new secret and returns it. The old secrets also sign, for as long as
// keep.
func (d *Deliverer) Rotate(ctx context.Context, id int64, keep time.Duration) (string, error) {
	text := newSecret()
	err := rows.InTx(ctx, d.cfg.DB, func(tx *ent.Tx) error {
		row, err := tx.WebhookEndpoint.Query().Where(webhookendpoint.ID(id)).Modify(rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) {
			return errNoEndpoint
		}
		if err != nil {
			return err
		}
		old, err := parseSecrets(row.Secrets)
		if err != nil {
			return err
		}
		now := d.cfg.Now()
		until, list := now.Add(keep).UnixMilli(), []secret{{Text: text}}
		for _, s := range old {
			if s.Until == 0 || s.Until > until {
				s.Until = until
			}
			if s.Until > now.UnixMilli() {
				list = append(list, s)
			}
		}
		secrets, err := json.Marshal(list[:min(len(list), 5)]) // bounds the number of signatures
		if err != nil {
			return err
		}
		return tx.WebhookEndpoint.UpdateOne(row).SetSecrets(string(secrets)).Exec(ctx)
	})
	return text, errs.Wrap(err, "rotate secret")
}

// Test sends an event of the type webhook.test to an endpoint, once and without delay. It returns
// the status of the answer, or 0 if there is none. The event is not stored.
func (d *Deliverer) Test(ctx context.Context, id int64) (int, error) {
	row, err := d.cfg.DB.WebhookEndpoint.Get(ctx, id)
	if ent.IsNotFound(err) {
		return 0, errNoEndpoint
	}
	if err != nil {
		return 0, err
	}
	now := d.cfg.Now()
	body, err := json.Marshal(payload{Type: Test, Version: Version, Timestamp: now.UTC().Truncate(time.Millisecond)})
	if err != nil {
		return 0, err
	}
	a := d.post(ctx, row, newMessageID(), body)
	return a.status, a.err
}
