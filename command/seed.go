package command

import (
	"context"
	"log/slog"

	"tideline/seed"
	"tideline/server"
	"tideline/storage"
)

// Seed generates a demo network, or imports a follow graph.
type Seed struct{ seed.Options }

// Run writes to the database. It migrates the database first, unless the settings forbid it.
func (s Seed) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithStores(ctx, console, func(stores *storage.Stores, _ *slog.Logger) error {
		if c.Migrate == "on" {
			if err := stores.Migrate(ctx); err != nil {
				return err
			}
		}
		return seed.Run(ctx, stores, s.Options, console.Out, console.Log)
	})
}
