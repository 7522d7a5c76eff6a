package command

import (
	"context"

	"tideline/seed"
	"tideline/server"
	"tideline/server/backend"
)

// Seed generates a demo network, or imports a follow graph.
type Seed struct{ seed.Options }

// Run writes to the database. It migrates the database first, unless the settings forbid it.
func (s Seed) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.CreateAll, func(b *backend.Backend) error {
		return seed.Run(ctx, b.Stores, s.Options, console.Out, console.Log)
	})
}
