// Command tideline runs a social timeline: the server, its workers, and what
// an operator needs beside them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"tideline/bench"
	"tideline/queue"
	"tideline/seed"
	"tideline/server"
	"tideline/storage"
)

//go:generate go tool gqlgen generate

// commands is the command line. The settings belong to all commands.
type commands struct {
	server.Config

	Serve   serveCommand   `cmd:"" default:"1" help:"Run the server and its workers in one process. The default."`
	Server  serverCommand  `cmd:"" help:"Run a server without workers; needs a Redis that it shares with them."`
	Worker  workerCommand  `cmd:"" help:"Run workers without a server; needs a Redis that they share with it."`
	Migrate migrateCommand `cmd:"" name:"migrate" help:"Bring the database's schema up to date."`
	Seed    seedCommand    `cmd:"" help:"Make a demo network, or import a follow graph."`
	Feeds   feedsCommand   `cmd:"" help:"Look into timelines: inspect, explain, verify, rebuild."`
	Jobs    jobsCommand    `cmd:"" help:"Look at jobs that are outstanding or given up, and retry them."`
	Bench   benchCommand   `cmd:"" help:"Load a running Tideline as its users would, and report."`
}

func main() {
	var cli commands
	parser := kong.Must(&cli, kong.Name("tideline"), kong.ShortUsageOnError(),
		kong.Description("Tideline keeps a timeline for every user and delivers it live.\n\nEvery setting is a flag and an environment variable; the flag wins."),
		kong.DefaultEnvars(server.EnvPrefix), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}))
	if err := server.CheckEnv(os.Environ(), variables(parser.Model.Node)); err != nil {
		fmt.Fprintf(os.Stderr, "tideline: warning: %v\n", err)
	}
	command, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)

	ctx := untilSignalled()
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(cli.Config, server.Console{Out: os.Stdout, Log: os.Stderr})
	parser.FatalIfErrorf(command.Run())
}

// variables are the environment variables that some flag reads.
func variables(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	return names
}

// sameSignal is how soon after the first a signal is taken for its echo: some
// supervisors signal a process and then the group that it is in.
const sameSignal = 500 * time.Millisecond

// untilSignalled ends on the first SIGINT or SIGTERM; a second one ends the
// process there and then.
func untilSignalled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); time.Since(first) < sameSignal; {
			<-signals
		}
		fmt.Fprintln(os.Stderr, "tideline: second signal: not waiting for work in hand")
		os.Exit(1)
	}()
	return ctx
}

type serveCommand struct{}

func (serveCommand) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Serve, console)
}

type serverCommand struct{}

func (serverCommand) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Server, console)
}

type workerCommand struct{}

func (workerCommand) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Run(ctx, c, server.Worker, console)
}

type migrateCommand struct{}

func (migrateCommand) Run(ctx context.Context, c server.Config, console server.Console) error {
	return server.Migrate(ctx, c, console)
}

type seedCommand struct{ seed.Options }

func (s seedCommand) Run(ctx context.Context, c server.Config, console server.Console) error {
	return c.WithStores(ctx, console, func(stores *storage.Stores, _ *slog.Logger) error {
		if c.Migrate == "on" {
			if err := stores.Migrate(ctx); err != nil {
				return err
			}
		}
		return seed.Run(ctx, stores, s.Options, console.Out, console.Log)
	})
}

type benchCommand struct{ bench.Options }

func (b benchCommand) Run(ctx context.Context, console server.Console) error {
	return bench.Run(ctx, b.Options, console.Out, console.Log)
}

type jobsCommand struct {
	List  jobsList  `cmd:"" help:"List jobs, oldest first."`
	Retry jobsRetry `cmd:"" help:"Give jobs that were given up another full set of attempts."`
}

type jobsList struct {
	Dead  bool   `env:"-" help:"Only jobs that were given up."`
	Kind  string `env:"-" help:"Only jobs of this kind."`
	After int64  `env:"-" help:"Only jobs with a higher id: the next page."`
	Limit int    `env:"-" default:"100" help:"At most this many, 1 to 1000."`
	JSON  bool   `env:"-" name:"json" help:"One JSON object per line."`
}

func (l jobsList) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withQueue(ctx, c, console, func(q *queue.Queue) error {
		jobs, err := q.List(ctx, queue.ListOptions{Dead: l.Dead, Kind: l.Kind, After: l.After, Limit: l.Limit})
		if err != nil {
			return err
		}
		if l.JSON {
			out := json.NewEncoder(console.Out)
			for _, job := range jobs {
				if err := out.Encode(job); err != nil {
					return fmt.Errorf("print job %d: %w", job.ID, err)
				}
			}
			return nil
		}
		table := tabwriter.NewWriter(console.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tKIND\tPOOL\tDEAD\tCREATED\tPAYLOAD")
		for _, job := range jobs {
			fmt.Fprintf(table, "%d\t%s\t%s\t%t\t%s\t%s\n",
				job.ID, job.Kind, job.Pool, job.Dead, job.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"), job.Payload)
		}
		return table.Flush()
	})
}

type jobsRetry struct {
	IDs []int64 `arg:"" optional:"" name:"id" help:"Ids of the jobs. None: all that were given up."`
}

func (r jobsRetry) Run(ctx context.Context, c server.Config, console server.Console) error {
	return withQueue(ctx, c, console, func(q *queue.Queue) error {
		ids := r.IDs
		if len(ids) == 0 {
			var err error
			if ids, err = deadJobs(ctx, q); err != nil {
				return err
			}
		}
		n, err := q.Retry(ctx, ids...)
		if err != nil {
			return err
		}
		fmt.Fprintf(console.Out, "%d jobs will be tried again.\n", n)
		return nil
	})
}

// deadJobs are the ids of all jobs that were given up.
func deadJobs(ctx context.Context, q *queue.Queue) ([]int64, error) {
	var ids []int64
	for after := int64(0); ; after = ids[len(ids)-1] {
		jobs, err := q.List(ctx, queue.ListOptions{Dead: true, After: after, Limit: 1000})
		if err != nil || len(jobs) == 0 {
			return ids, err
		}
		for _, job := range jobs {
			ids = append(ids, job.ID)
		}
	}
}

func withQueue(ctx context.Context, c server.Config, console server.Console, fn func(*queue.Queue) error) error {
	return c.WithStores(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		q, err := queue.New(stores.DB, stores.Redis, queue.Config{Logger: log})
		if err != nil {
			return err
		}
		return fn(q)
	})
}
