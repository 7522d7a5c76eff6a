package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"tideline/bench/capacity"
	"tideline/storage"
)

// commandLine has the flags of the program.
type commandLine struct {
	Options

	DataDir     string `group:"Stores" env:"TIDELINE_DATA_DIR" default:"tideline-data" help:"With --model: data directory of the server, if its database is a SQLite file there."`
	DatabaseURL string `group:"Stores" name:"database-url" env:"TIDELINE_DATABASE_URL" placeholder:"URL" help:"With --model: database of the server."`
	RedisURL    string `group:"Stores" name:"redis-url" env:"TIDELINE_REDIS_URL" placeholder:"URL" help:"With --model: Redis of the server."`
}

func main() {
	var c commandLine
	parser := kong.Must(&c, options()...)
	_, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	parser.FatalIfErrorf(c.run(ctx, os.Stdout, os.Stderr))
}

// options returns the options of the command line's parser.
func options() []kong.Option {
	return []kong.Option{
		kong.Name("bench"), kong.ShortUsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Description("Load a running Tideline as its users would, and report."), kong.Vars{"assumptions": capacity.Help()},
	}
}

// run runs the benchmark that the flags describe. To measure a model it opens the server's stores. That they do not
// open is an error only if --database-url or --redis-url names them; otherwise the report says why they are missing.
func (c commandLine) run(ctx context.Context, out, progress io.Writer) error {
	var inside Inside
	if c.Model && c.Constants == "" {
		// The benchmark only reads, so a Redis that hides its replication id will do.
		where := storage.Config{DataDir: c.DataDir, DatabaseURL: c.DatabaseURL, RedisURL: c.RedisURL, RedisIncarnation: "optional"}
		stores, err := storage.OpenBeside(ctx, where, slog.New(slog.NewTextHandler(progress, nil)))
		switch {
		case err == nil:
			defer stores.Close()
			inside.Stores = stores
		case c.DatabaseURL != "" || c.RedisURL != "":
			return fmt.Errorf("open the server's stores: %w", err)
		default:
			inside.Why = err.Error()
		}
	}
	return Run(ctx, c.Options, inside, out, progress)
}
