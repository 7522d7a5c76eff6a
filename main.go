// Command tideline runs a social timeline. This file has the table of its commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"tideline/command"
	"tideline/server"
)

//go:generate go tool gqlgen generate

// commands is the command line. All commands share the settings in Config.
type commands struct {
	server.Config

	Serve       command.Serve       `cmd:"" default:"1" help:"Run the server and its workers in one process. The default."`
	Server      command.Server      `cmd:"" help:"Run a server without workers; needs a Redis that it shares with them."`
	Worker      command.Worker      `cmd:"" help:"Run workers without a server; needs a Redis that they share with it."`
	Migrate     command.Migrate     `cmd:"" name:"migrate" help:"Bring the database's schema up to date."`
	Seed        command.Seed        `cmd:"" help:"Make a demo network, or import a follow graph."`
	Import      command.Import      `cmd:"" help:"Take users, follows, blocks, posts and likes from a file; may be interrupted and run again."`
	Export      command.Export      `cmd:"" help:"Write users, follows, blocks, posts and likes to a file that import takes."`
	Backup      command.Backup      `cmd:"" help:"Copy the SQLite file of a running Tideline; say how PostgreSQL is backed up."`
	Feeds       command.Feeds       `cmd:"" help:"Look into timelines: inspect, explain, replay, verify, rebuild."`
	Recount     command.Recount     `cmd:"" help:"Check the counters of users and posts, and the tags of posts; report what is wrong, or repair it."`
	Ps          command.Ps          `cmd:"" help:"List the processes (gone ones for a day): what they do, and whether their workers are paused."`
	Workers     command.Workers     `cmd:"" help:"Pause the workers of running processes, drain and resume them."`
	Jobs        command.Jobs        `cmd:"" help:"Look at jobs that are outstanding or given up; retry or discard the latter."`
	Users       command.Users       `cmd:"" help:"Act on accounts: sign-out, delete, restore, role, suspend, unsuspend, export."`
	Keys        command.Keys        `cmd:"" help:"Make, list and revoke the API keys of servers."`
	Webhooks    command.Webhooks    `cmd:"" help:"Manage webhooks: endpoints, deliveries, replays."`
	Settings    command.Config      `cmd:"" name:"config" help:"Say what would run with the settings, and what is unsafe."`
	Healthcheck command.Healthcheck `cmd:"" help:"Ask a running process whether it is well; for containers."`
	Version     command.Version     `cmd:"" help:"Say which program this is: version, commit, Go, platform."`
}

func main() {
	var cli commands
	parser := kong.Must(&cli, kong.Name("tideline"), kong.ShortUsageOnError(),
		kong.Description("Tideline keeps a timeline for every user and delivers it live.\n\nEvery setting is a flag and an environment variable; the flag wins."),
		kong.DefaultEnvars(server.EnvPrefix), kong.Vars(server.Vars()), kong.Vars(command.Vars()), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.Resolvers(kong.ResolverFunc(secret)), kong.Help(help))
	if err := server.CheckEnv(os.Environ(), variables(parser.Model.Node)); err != nil {
		fmt.Fprintf(os.Stderr, "tideline: warning: %v\n", err)
	}
	chosen, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)

	ctx := untilSignalled()
	chosen.BindTo(ctx, (*context.Context)(nil))
	chosen.Bind(cli.Config, server.Console{Out: os.Stdout, Log: os.Stderr})
	parser.FatalIfErrorf(chosen.Run())
}

// help prints the flags of a command. For commands other than serve, server, worker and config, it
// hides every setting except the storage and the address, which say where the command finds its data.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	command := ctx.Selected()
	for command != nil && command.Parent != nil && command.Parent != ctx.Model.Node {
		command = command.Parent
	}
	if command == nil || slices.Contains([]string{"serve", "server", "worker", "config"}, command.Name) {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	for _, flag := range ctx.Model.Flags {
		flag.Hidden = flag.Hidden || flag.Group != nil && flag.Group.Key != "Storage" && flag.Name != "addr"
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(ctx.Stdout, "\nThe command takes all other settings of the server, too: \"tideline serve --help\" lists them.")
	return err
}

// secret is a kong resolver. It reads the value of a secret flag from a file.
func secret(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !flag.Tag.Has("secret") {
		return nil, nil // no value
	}
	value, found, err := server.Secret(flag.Envs[0])
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

// variables lists the environment variables that the flags read.
func variables(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		names = append(names, flag.Envs...)
		if flag.Tag.Has("secret") {
			names = append(names, server.SecretFile(flag.Envs[0]))
		}
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	return names
}

// sameSignal is how long further signals count as repetitions of the first. Some supervisors signal a
// process and then its process group.
const sameSignal = 500 * time.Millisecond

// untilSignalled returns a context that ends on the first SIGINT or SIGTERM. A later signal ends the
// process at once; signals within sameSignal of the first are ignored.
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
