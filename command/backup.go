package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tideline/server"
	"tideline/storage"
)

// Backup copies the database of a running Tideline.
type Backup struct {
	File string `arg:"" help:"A new file, which becomes the database as it is at one moment."`
}

const pgDump = `PostgreSQL has its own tools, which know the database and its users:
  pg_dump --format=custom --file=%s "$TIDELINE_DATABASE_URL"    # as it is at one moment, while Tideline runs
  pg_restore --clean --if-exists --no-owner --dbname="$TIDELINE_DATABASE_URL" %[1]s
Redis needs no backup: empty it after a restore, and feeds are built again as they are read.
`

// Run writes the file. It fails for PostgreSQL, after saying what to do, so that nobody
// takes that for a backup.
func (b Backup) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithStoresBeside(ctx, console, func(stores *storage.Stores) error {
		err := stores.Backup(ctx, b.File)
		if errors.Is(err, storage.ErrOwnTools) {
			fmt.Fprintf(console.Out, pgDump, b.File)
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
