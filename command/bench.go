package command

import (
	"context"

	"tideline/bench"
	"tideline/bench/capacity"
	"tideline/server"
	"tideline/server/backend"
	"tideline/storage/migration"
)

// Vars returns values that the tags of commands refer to as ${...}.
func Vars() map[string]string {
	return map[string]string{
		"assumptions":  capacity.Help(),
		"lock_timeout": migration.DefaultLockTimeout.String(), "lock_patience": migration.DefaultPatience.String(),
	}
}

// Bench generates load on a running Tideline.
type Bench struct{ bench.Options }

// Run prints a report of the measurements. To measure a model it opens the stores of the settings. Configured
// stores must open; the default, a SQLite file in the data directory, may be missing.
func (b Bench) Run(ctx context.Context, c server.Config, console server.Console) error {
	var inside bench.Inside
	if b.Model && b.Constants == "" {
		opened := false
		err := with(ctx, c, console, server.Beside, func(beside *backend.Backend) error {
			opened = true
			return bench.Run(ctx, b.Options, bench.Inside{Stores: beside.Stores}, console.Out, console.Log)
		})
		if opened || c.DatabaseURL != "" || c.RedisURL != "" {
			return err
		}
		inside.Why = err.Error()
	}
	return bench.Run(ctx, b.Options, inside, console.Out, console.Log)
}
