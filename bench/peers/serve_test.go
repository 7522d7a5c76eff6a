package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"

	"github.com/alecthomas/kong"

	"tideline/server"
)

// serveRole runs the server that the environment names in place of the tests.
func serveRole(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	database, redis := os.Getenv(databaseVariable), os.Getenv(redisVariable)
	switch role {
	case "tideline":
		return serveTideline(ctx, database, redis)
	case "floor":
		return serveFloor(ctx, database, redis)
	case "gqlgen":
		return serveGqlgen(ctx, database)
	case "gorilla":
		return serveGorilla(ctx)
	case "centrifuge":
		return serveCentrifuge(ctx)
	}
	return fmt.Errorf("there is no server %q", role)
}

// serveTideline is "tideline serve": a server with its workers.
func serveTideline(ctx context.Context, database, redis string) error {
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var c server.Config
	parser, err := kong.New(&c, kong.Vars(server.Vars()), kong.DefaultEnvars(server.EnvPrefix))
	if err != nil {
		return err
	}
	if _, err := parser.Parse([]string{
		"--addr=127.0.0.1:0", "--rate-limit=off", "--log-level=warn", "--data-dir=" + filepath.Join(dir, "data"),
		"--database-url=" + database, "--redis-url=" + redis,
	}); err != nil {
		return err
	}
	return server.Run(ctx, c, server.Serve, server.Console{Out: os.Stdout, Log: os.Stderr})
}

// serveHTTP serves until ctx ends, and announces itself as Tideline does.
func serveHTTP(ctx context.Context, h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "API http://%s/\n", l.Addr())
	s := &http.Server{Handler: h}
	go func() {
		<-ctx.Done()
		s.Close()
	}()
	_ = s.Serve(l)
	return nil
}

// serveLive answers GET /graphql by a subscription, POST /graphql by a post to all of
// them, and GET /metrics by their number, as Tideline does.
func serveLive(ctx context.Context, socket, post http.HandlerFunc, subscriptions func() int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /graphql", socket)
	mux.HandleFunc("POST /graphql", post)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "tideline_live_subscriptions %d\n", subscriptions())
	})
	return serveHTTP(ctx, mux)
}
