package command

import (
	"context"
	"fmt"

	"tideline/server"
)

// Config examines the settings.
type Config struct {
	Check configCheck `cmd:"" help:"Say what would run with these settings, and what of it is unsafe for production."`
}

type configCheck struct {
	Strict bool `env:"-" help:"Fail when something is unsafe."`
}

func (k configCheck) Run(ctx context.Context, c server.Config, console server.Console) error {
	unsafe, err := server.Check(ctx, c, console)
	if err == nil && k.Strict && unsafe > 0 {
		return fmt.Errorf("%d things are unsafe for production", unsafe)
	}
	return err
}
