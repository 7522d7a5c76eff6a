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
	File string `arg:"" help:"A new file, which becomes the database as it is at one moment."`
}

const pgDump = `PostgreSQL has its own tools, which know the database and its users:
  pg_dump --format=custom --file=%s %s    # as it is at one moment, while Tideline runs
  pg_restore --clean --if-exists --no-owner --dbname=%[2]s %[1]s
Redis needs no backup: empty it after a restore, and feeds are built again as they are read.
`

// Run writes the backup. For PostgreSQL it prints which tools to use and fails, so that
// nobody mistakes that for a backup.
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
		fmt.Fprintf(console.Out, "%s has the database: %d bytes.\n", b.File, info.Size())
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
	return "'the URL that --database-url has'"
}
