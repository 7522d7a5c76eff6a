package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tideline/feed/webhook"
	"tideline/server"
	"tideline/server/backend"
)

// Webhooks manages the endpoints that receive events.
type Webhooks struct {
	List       webhooksList       `cmd:"" help:"List endpoints, with what is on its way to them."`
	Add        webhooksAdd        `cmd:"" help:"Add an endpoint and print its secret, once."`
	Remove     webhooksRemove     `cmd:"" help:"Remove an endpoint; what is on its way to it is dropped."`
	Enable     webhooksEnable     `cmd:"" help:"Tell an endpoint again that was disabled because it answered 410 Gone."`
	Rotate     webhooksRotate     `cmd:"" help:"Give an endpoint a new secret and print it, once; the old one signs, too, for a while."`
	Deliveries webhooksDeliveries `cmd:"" help:"List deliveries, newest first."`
	Replay     webhooksReplay     `cmd:"" help:"Deliver again what was given up, or delivered; try what waits now."`
	Test       webhooksTest       `cmd:"" help:"Send an endpoint a test event now, and say what it answers."`
}

type webhooksList struct{}

func (webhooksList) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		list, err := b.Webhooks.Endpoints(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tURL\tTYPES\tSECRETS\tPENDING\tDEAD\tCREATED\tDISABLED\tLAST ERROR")
		for _, e := range list {
			disabled := ifEver(e.DisabledAt)
			if e.DisabledWhy != "" {
				disabled += " " + e.DisabledWhy
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", e.ID, e.URL, strings.Join(e.Types, ","), e.Secrets, e.Pending, e.Dead, ifEver(&e.CreatedAt), disabled, e.LastError)
		}
		return table.Flush()
	})
}

type webhooksAdd struct {
	URL   string   `arg:"" name:"url" help:"Where to send events by POST, as https://app.example.com/tideline."`
	Types []string `env:"-" placeholder:"TYPE" help:"Only events of these types, such as post.created or follow.*. Default: all."`
}

func (a webhooksAdd) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		e, secret, err := b.Webhooks.Add(ctx, a.URL, a.Types)
		if err != nil {
			return err
		}
		fmt.Fprintln(console.Out, secret)
		fmt.Fprintf(console.Log, "Endpoint %d is told all that happens in %v and later.\n", e.ID, webhook.SettleTime)
		return nil
	})
}

type webhooksRemove struct {
	ID int64 `arg:"" name:"id" help:"Id of the endpoint."`
}

func (r webhooksRemove) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		if err := b.Webhooks.Remove(ctx, r.ID); err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "Endpoint %d is removed.\n", r.ID)
		return nil
	})
}

type webhooksEnable struct {
	ID int64 `arg:"" name:"id" help:"Id of the endpoint."`
}

func (e webhooksEnable) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		if err := b.Webhooks.Enable(ctx, e.ID); err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "Endpoint %d is told all that happens in %v and later.\n", e.ID, webhook.SettleTime)
		return nil
	})
}

type webhooksRotate struct {
	ID   int64         `arg:"" name:"id" help:"Id of the endpoint."`
	Keep time.Duration `env:"-" default:"24h" help:"The secrets that it has sign for this long, too."`
}

func (r webhooksRotate) Run(ctx context.Context, c server.Config, console server.Console) error {
	if r.Keep < 0 {
		return errors.New("--keep is below 0")
	}
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		secret, err := b.Webhooks.Rotate(ctx, r.ID, r.Keep)
		if err != nil {
			return err
		}
		fmt.Fprintln(console.Out, secret)
		return nil
	})
}

type webhooksDeliveries struct {
	Endpoint int64  `env:"-" placeholder:"ID" help:"Only those to this endpoint."`
	State    string `env:"-" enum:",pending,failing,delivered,dead" default:"" help:"Only those that are pending, failing (pending after an attempt that failed), delivered or dead."`
	Before   int64  `env:"-" placeholder:"ID" help:"Only deliveries with a lower id: the next page."`
	Limit    int    `env:"-" default:"100" help:"At most this many, 1 to 1000."`
	JSON     bool   `env:"-" name:"json" help:"One JSON object per line, with the payload."`
}

func (l webhooksDeliveries) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		o := webhook.ListOptions{Endpoint: l.Endpoint, State: strings.ToUpper(l.State), Before: l.Before, Limit: l.Limit}
		if l.State == "failing" {
			o.State, o.Failing = "PENDING", true
		}
		list, err := b.Webhooks.Deliveries(ctx, o)
		if err != nil {
			return err
		}
		out, table := json.NewEncoder(console.Out), tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		if !l.JSON {
			fmt.Fprintln(table, "ID\tENDPOINT\tTYPE\tSUBJECT\tSTATE\tATTEMPTS\tCREATED\tDUE\tLAST ERROR")
		}
		for _, d := range list {
			if l.JSON {
				if err := out.Encode(d); err != nil {
					return fmt.Errorf("print delivery %d: %w", d.ID, err)
				}
				continue
			}
			created, state, due := time.UnixMilli(d.CreatedAt), strings.ToLower(d.State), ""
			if d.State == "PENDING" {
				at := time.UnixMilli(d.DueAt)
				due = ifEver(&at)
				if d.LastError != "" {
					state = "failing"
				}
			}
			fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", d.ID, d.EndpointID, d.Type, d.Subject, state, d.Attempts, ifEver(&created), due, d.LastError)
		}
		return table.Flush()
	})
}

type webhooksReplay struct {
	IDs      []int64 `arg:"" optional:"" name:"id" help:"Ids of deliveries."`
	Endpoint int64   `env:"-" placeholder:"ID" help:"Instead of ids: all that was given up for this endpoint, or waits."`
}

func (r webhooksReplay) Run(ctx context.Context, c server.Config, console server.Console) error {
	if (len(r.IDs) > 0) == (r.Endpoint != 0) {
		return errors.New("name deliveries, or an --endpoint")
	}
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		n, err := b.Webhooks.Replay(ctx, r.Endpoint, r.IDs...)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%s will be tried again.\n", count(n, "delivery", "deliveries"))
		return nil
	})
}

type webhooksTest struct {
	ID int64 `arg:"" name:"id" help:"Id of the endpoint."`
}

func (t webhooksTest) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		status, err := b.Webhooks.Test(ctx, t.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "Endpoint %d took it: status %d.\n", t.ID, status)
		return nil
	})
}
