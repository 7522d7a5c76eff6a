package command

import (
	"context"
	"errors"

	"tideline/server"
	"tideline/server/backend"
)

// with opens what a command needs, and closes it when run returns.
func with(ctx context.Context, c server.Config, console server.Console, access server.Access, run func(*backend.Backend) error) (err error) {
	b, err := server.Open(ctx, c, console, access)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return run(b)
}
