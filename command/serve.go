// Package command runs the commands of the command line. Each command is a type whose fields are its flags.
// main.go has the table of commands.
package command

import (
	"context"

	"tideline/server"
)

// Serve runs a server with its workers in one process.
type Serve struct{}

// Run serves until ctx ends, then stops in order.
func (Serve) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Serve, console)
}

// Server runs a server without workers.
type Server struct{}

// Run serves until ctx ends, then stops in order.
func (Server) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Server, console)
}

// Worker runs workers without a server.
type Worker struct{}

// Run works until ctx ends, then stops in order.
func (Worker) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Worker, console)
}
