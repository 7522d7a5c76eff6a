package command

import (
	"context"

	"tideline/bench"
	"tideline/server"
)

// Bench loads a running Tideline as its users do.
type Bench struct{ bench.Options }

// Run prints a report of its measurements.
func (b Bench) Run(ctx context.Context, console server.Console) error {
	return bench.Run(ctx, b.Options, console.Out, console.Log)
}
