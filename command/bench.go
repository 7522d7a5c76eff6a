package command

import (
	"context"

	"tideline/bench"
	"tideline/bench/capacity"
	"tideline/server"
	"tideline/storage"
	"tideline/storage/migration"
)

// Vars has what the tags of commands tell of their packages.
func Vars() map[string]string {
	return map[string]string{
		"assumptions":  capacity.Help(),
		"lock_timeout": migration.DefaultLockTimeout.String(), "lock_patience": migration.DefaultPatience.String(),
	}
}

// Bench loads a running Tideline as its users do.
type Bench struct{ bench.Options }

// Run prints a report of its measurements. To measure a model it opens the stores of the
// settings. Those that are named must open; a SQLite file in the data directory, which is
// the default, need not be there.
func (b Bench) Run(ctx context.Context, c server.Config, console server.Console) error {
	var inside bench.Inside
	if b.Model && b.Constants == "" {
		opened := false
		err := c.WithStoresBeside(ctx, console, func(stores *storage.Stores) error {
			opened = true
			return bench.Run(ctx, b.Options, bench.Inside{Stores: stores}, console.Out, console.Log)
		})
		if opened || c.DatabaseURL != "" || c.RedisURL != "" {
			return err
		}
		inside.Why = err.Error()
	}
	return bench.Run(ctx, b.Options, inside, console.Out, console.Log)
}
