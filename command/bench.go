package command

import (
	"context"

	"tideline/bench"
	"tideline/server"
)

// Bench loads a running Tideline as its users would.
type Bench struct{ bench.Options }

// Run prints a report of what it measured.
func (b Bench) Run(ctx context.Context, console server.Console) error {
	return bench.Run(ctx, b.Options, console.Out, console.Log)
}
