package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"tideline/server"
)

// serveRole runs the server that the environment names, instead of the tests.
func serveRole(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if path := os.Getenv(profileVariable); path != "" {
		stop, err := profilePhases(path)
		if err != nil {
			return err
		}
		defer stop()
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

// serveTideline runs "tideline serve": a server with its workers.
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
		"--addr=127.0.0.1:0", "--log-level=warn", "--data-dir=" + filepath.Join(dir, "data"),
		"--database-url=" + database, "--redis-url=" + redis,
	}); err != nil {
		return err
	}
	return server.Run(ctx, c, server.Serve, server.Console{Out: os.Stdout, Log: os.Stderr})
}

// serveHTTP serves until ctx ends, and announces its address as Tideline does.
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

// serveLive serves a minimal live API with Tideline's paths: GET /graphql subscribes, POST /graphql sends a
// post to all subscriptions, and GET /metrics returns their number.
func serveLive(ctx context.Context, socket, post http.HandlerFunc, subscriptions func() int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /graphql", socket)
	mux.HandleFunc("POST /graphql", post)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "tideline_live_subscriptions %d\n", subscriptions())
	})
	return serveHTTP(ctx, mux)
}

// profilePhases writes a CPU profile to path until stop is called. Each SIGUSR1 ends a phase: its profile is
// written to path with the phase's number, and the heap and goroutines at its end beside it.
func profilePhases(path string) (stop func(), err error) {
	begin := func(path string) (*os.File, error) {
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		return f, pprof.StartCPUProfile(f)
	}
	f, err := begin(path)
	if err != nil {
		return nil, err
	}
	next, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(next, syscall.SIGUSR1)
	var phases sync.WaitGroup
	phases.Go(func() {
		for phase := 1; ; phase++ {
			ending := false
			select {
			case <-next:
			case <-done:
				ending = true
			}
			pprof.StopCPUProfile()
			f.Close()
			if ending {
				return
			}
			named := fmt.Sprintf("%s.%d", path, phase)
			_ = os.Rename(path, named)
			for _, kind := range []string{"heap", "goroutine"} {
				if out, err := os.Create(named + "." + kind); err == nil {
					runtime.GC() // the heap profile describes the last collection
					_ = pprof.Lookup(kind).WriteTo(out, 0)
					out.Close()
				}
			}
			if f, err = begin(path); err != nil {
				return
			}
		}
	})
	return func() {
		close(done)
		phases.Wait()
	}, nil
}
