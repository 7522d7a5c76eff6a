package command

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tideline/feed/apikey"
	"tideline/feed/paging"
	"tideline/server"
	"tideline/server/backend"
)

// Keys manages the API keys of other servers.
type Keys struct {
	Create keysCreate `cmd:"" help:"Make a key and print it, once."`
	List   keysList   `cmd:"" help:"List all keys, newest first."`
	Revoke keysRevoke `cmd:"" help:"Refuse keys from now on, everywhere within seconds."`
}

type keysCreate struct {
	Name   string   `arg:"" help:"What the key is for."`
	Scopes []string `env:"-" enum:"read,write,import,keys,moderate" default:"read" help:"What it may do: read, write, import, keys, moderate; several separated by commas."`
	Issuer string   `env:"-" help:"Whose ids of users it speaks of: the issuer of your tokens, if you have one."`
}

func (k keysCreate) Run(ctx context.Context, c server.Config, console server.Console) error {
	scopes := make([]apikey.Scope, len(k.Scopes))
	for i, name := range k.Scopes {
		scopes[i] = apikey.Scope(strings.ToUpper(name))
	}
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		_, text, err := b.Keys.Create(ctx, nil, k.Name, k.Issuer, scopes)
		if err != nil {
			return err
		}
		fmt.Fprintln(console.Out, text)
		return nil
	})
}

type keysList struct{}

func (keysList) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tNAME\tISSUER\tSCOPES\tCREATED\tLAST USED\tREVOKED")
		var page paging.Page
		for {
			found, err := b.Keys.List(ctx, page)
			if err != nil {
				return err
			}
			for _, k := range found.Nodes() {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.PublicID(), k.Name, k.Issuer,
					strings.ToLower(strings.Trim(fmt.Sprint(k.Scopes), "[]")), ifEver(&k.CreatedAt), ifEver(k.LastUsedAt), ifEver(k.RevokedAt))
			}
			info := found.PageInfo()
			if !info.HasNextPage {
				return table.Flush()
			}
			page.After = info.EndCursor
		}
	})
}

// ifEver formats a time for a table, or "-" for nil.
func ifEver(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format("2006-01-02T15:04:05Z")
}

type keysRevoke struct {
	IDs []string `arg:"" name:"id" help:"Ids of keys as tk_7, or the keys themselves."`
}

func (k keysRevoke) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQL, func(b *backend.Backend) error {
		for _, text := range k.IDs {
			id, err := apikey.ParseID(text)
			if err != nil {
				return err
			}
			key, err := b.Keys.Revoke(ctx, nil, id)
			if err != nil {
				return err
			}
			fmt.Fprintf(console.Out, "%s (%s) is revoked.\n", key.PublicID(), key.Name)
		}
		return nil
	})
}
