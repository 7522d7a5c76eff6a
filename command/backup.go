package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tideline/server"
	"tideline/server/backend"
	"tideline/storage"
)

// Backup copies the database of a running Tideline.
type Backup struct {
	File string `arg:"" help:"Path of a new file, which will hold the database as it is at one moment."`
}

const pgDump = `Use the tools of PostgreSQL:
  pg_dump --format=custom --file=%s %s    # copies the database as it is at one moment, while Tideline runs
  pg_restore --clean --if-exists --no-owner --dbname=%[2]s %[1]s
Redis needs no backup. Empty it after a restore: feeds are built again when they are read.
`

// Run writes the backup. For PostgreSQL it only prints which tools to use. It then fails, so that a
// script does not take that for a backup.
func (b Backup) Run(ctx context.Context, c server.Config, console server.Console) error {
	return with(ctx, c, console, server.SQLAnySchema, func(opened *backend.Backend) error {
		err := opened.Stores.Backup(ctx, b.File)
		if errors.Is(err, storage.ErrOwnTools) {
			fmt.Fprintf(console.Out, pgDump, b.File, databaseURL())
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(b.File)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%s has a copy of the database: %d bytes.\n", b.File, info.Size())
		return nil
	})
}

// databaseURL returns the database URL as a shell expression: a reference to the environment variable or the
// file that this process reads it from.
func databaseURL() string {
	const setting = server.EnvPrefix + "_DATABASE_URL"
	switch {
	case os.Getenv(setting) != "":
		return `"$` + setting + `"`
	case os.Getenv(server.SecretFile(setting)) != "":
		return `"$(cat "$` + server.SecretFile(setting) + `")"`
	}
	return "'the value of --database-url'"
}
