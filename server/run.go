// Package server is the process: its configuration, the HTTP and WebSocket
// transports of the API, who may use them how often, health and metrics, and
// the order in which everything starts and stops.
//
// What holds:
//
//   - Both transports do the same with a request: authenticate, check, limit,
//     execute. GraphQL over HTTP and graphql-transport-ws are followed to the
//     letter, the older graphql-ws as far as it was ever written down.
//   - A client costs a bounded amount of memory and nobody else's time: bodies,
//     messages, queues, operations and connections have bounds, every read and
//     write a deadline. One that does not keep up loses its socket.
//   - A process that is told to stop says so on /readyz, takes nothing new,
//     finishes what it has in hand within Config.ShutdownGrace, and closes its
//     sockets with a code on which clients reconnect.
//
// It knows no rule of the product and resolves no field.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/stream"
	"tideline/feed/visibility"
	"tideline/graph"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/timeline"
	"tideline/web"
	"tideline/workers"
)

// Role is what a process does.
type Role struct {
	server, worker bool
}

// The roles.
var (
	Serve  = Role{server: true, worker: true}
	Server = Role{server: true}
	Worker = Role{worker: true}
)

// Console is where a process speaks: a banner for people to Out, the log to Log.
type Console struct{ Out, Log io.Writer }

// Run runs a process of the role until ctx ends, then stops it in order. Errors:
// settings that are not allowed, stores that do not answer, an address in use;
// later, the failure of a part without which the others cannot go on.
func Run(ctx context.Context, c Config, role Role, console Console) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if role != Serve && c.RedisURL == "" {
		return errors.New("separate servers and workers need a Redis that they share: set --redis-url (TIDELINE_REDIS_URL), or run both in one process with 'tideline serve'")
	}
	log, err := newLogger(console.Log, c.LogFormat, c.LogLevel)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	// The address first: a second process that was started by mistake should
	// find out before it touches anything.
	listener, err := c.listen(ctx, role)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	stores, err := storage.Open(ctx, c.storage(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if err := c.migrate(ctx, stores); err != nil {
		return err
	}
	p, err := newProcess(ctx, c, role, stores, log)
	if err != nil {
		return err
	}
	if listener != nil {
		if p.listener, err = p.admit(listener); err != nil {
			return err
		}
	}
	p.announce(console.Out)
	err = p.run(ctx)
	log.InfoContext(ctx, "stopped")
	return err
}

// Migrate brings the database's schema up to date.
func Migrate(ctx context.Context, c Config, console Console) error {
	return c.WithStores(ctx, console, func(stores *storage.Stores, _ *slog.Logger) error { return stores.Migrate(ctx) })
}

// WithStores opens the stores for a command that is no server, and closes them
// when fn returns.
func (c Config) WithStores(ctx context.Context, console Console, fn func(*storage.Stores, *slog.Logger) error) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	log, err := newLogger(console.Log, c.LogFormat, c.LogLevel)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	stores, err := storage.Open(ctx, c.storage(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	return fn(stores, log)
}

// listen takes the address that the role answers on; nil when there is none.
func (c Config) listen(ctx context.Context, role Role) (net.Listener, error) {
	addr := c.Addr
	if !role.server {
		addr = c.WorkerAddr
	}
	if addr == "" {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

func (c Config) migrate(ctx context.Context, stores *storage.Stores) error {
	if c.Migrate == "on" {
		return stores.Migrate(ctx)
	}
	return upToDate(ctx, stores)
}

// upToDate is an error unless the database's schema is.
func upToDate(ctx context.Context, stores *storage.Stores) error {
	pending, err := stores.Pending(ctx)
	if err == nil && pending {
		err = errors.New("the database's schema is not up to date: run 'tideline migrate'")
	}
	return err
}

// process is everything that runs.
type process struct {
	config   Config
	role     Role
	stores   *storage.Stores
	log      *slog.Logger
	metrics  *metrics
	health   *health
	sockets  *sockets     // nil in a worker
	handler  http.Handler // of listener
	listener net.Listener // nil in a worker that answers nobody

	// work stops when the process is told to, base when nothing needs it any more.
	work, base []func(context.Context) error
}

func newProcess(ctx context.Context, c Config, role Role, stores *storage.Stores, log *slog.Logger) (*process, error) {
	p := &process{config: c, role: role, stores: stores, log: log, metrics: newMetrics()}
	p.health = &health{log: log, checks: []check{
		{"sql", stores.SQL.PingContext},
		{"redis", func(ctx context.Context) error { return stores.Redis.Ping(ctx).Err() }},
	}}
	var hub *live.Hub
	if role.server {
		hub = live.NewHub(stores.Redis, live.HubConfig{Sharded: stores.Sharded, Logger: log})
		p.health.checks = append(p.health.checks, check{"live", hub.Ready})
		p.base = append(p.base, hub.Run)
	}
	b, err := c.backend(stores, log, p.metrics)
	if err != nil {
		return nil, err
	}
	p.base = append(p.base, b.home.Run)
	if role.worker {
		w, err := workers.New(workers.Config{
			DB: stores.DB, Visibility: b.visibility, Home: b.home, Sessions: b.sessions, Timelines: b.timelines, Queue: b.jobs, Publisher: b.publisher,
			Observe: p.metrics.fanOut, ObserveHealth: p.metrics.health, ObserveCanary: p.metrics.canary, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		p.work = append(p.work, w.Run)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.health.live)
	mux.HandleFunc("GET /readyz", p.health.ready)
	if c.Metrics == "on" {
		mux.Handle("GET /metrics", p.metrics.handler(b.jobs.Stats, log))
	}
	if role.server {
		generator, err := ids.Open(ctx, stores.DB)
		if err != nil {
			return nil, err
		}
		p.base = append(p.base, generator.Run)
		if err := p.serveAPI(ctx, mux, b, generator, hub); err != nil {
			return nil, err
		}
	}
	p.handler = c.proxies().resolve(identify(secure(mux)))
	return p, nil
}

// backend is what servers, workers and commands work with.
type backend struct {
	stores     *storage.Stores
	timelines  *timeline.Store
	jobs       *queue.Queue
	publisher  *live.Publisher
	visibility *visibility.Reader
	home       *home.Home
	directory  *account.Directory
	sessions   *account.Sessions
}

func (c Config) backend(stores *storage.Stores, log *slog.Logger, m *metrics) (b backend, err error) {
	b.stores = stores
	b.timelines, err = timeline.New(stores.Redis, timeline.Config{InboxCap: c.InboxCap, OutboxCap: c.OutboxCap, ActiveFor: c.ActiveFor})
	if err != nil {
		return b, err
	}
	b.jobs, err = queue.New(stores.DB, stores.Redis, queue.Config{
		Pools:     map[queue.Pool]int{queue.Small: c.SmallWorkers, queue.Large: c.LargeWorkers},
		StopGrace: c.ShutdownGrace,
		Observe:   m.attempt,
		Logger:    log,
	})
	if err != nil {
		return b, err
	}
	b.publisher = live.NewPublisher(stores.Redis, stores.Sharded)
	b.visibility = visibility.New(stores.DB, stores.Dialect)
	b.directory = account.NewDirectory(stores.DB, c.MaxPage)
	b.sessions, err = account.NewSessions(account.SessionsConfig{DB: stores.DB, Publisher: b.publisher, TTL: c.SessionTTL, Logger: log})
	if err != nil {
		return b, err
	}
	b.home, err = home.New(home.Config{
		DB: stores.DB, Dialect: stores.Dialect, Visibility: b.visibility, Timelines: b.timelines, Queue: b.jobs, Publisher: b.publisher,
		Policy: c.policy(), Observe: m.timelineRead, Logger: log,
	})
	return b, err
}

// api is what resolvers call.
func (b backend) api(c Config, generator *ids.Generator, hub *live.Hub, log *slog.Logger) (a graph.Backend, err error) {
	a.Home, a.Directory = b.home, b.directory
	if a.Accounts, err = account.New(b.sessions, generator); err != nil {
		return a, err
	}
	a.Feed, err = feed.New(feed.Config{
		DB: b.stores.DB, Dialect: b.stores.Dialect, Visibility: b.visibility, Home: b.home, Directory: b.directory,
		Queue: b.jobs, IDs: generator, MaxText: c.MaxText, MaxPage: c.MaxPage, Logger: log,
	})
	if err != nil {
		return a, err
	}
	a.Streams, err = stream.New(stream.Config{
		DB: b.stores.DB, Visibility: b.visibility, Home: b.home, Sessions: b.sessions, Hub: hub, Logger: log,
	})
	return a, err
}

// WithHome gives a command that is no server the home timelines that servers use,
// and the people that have them. Errors: the Redis is inside some server's process,
// the schema is not up to date.
func (c Config) WithHome(ctx context.Context, console Console, fn func(*home.Home, *account.Directory) error) error {
	if c.RedisURL == "" {
		return errors.New("the feeds are in the Redis that servers and workers share: set --redis-url (TIDELINE_REDIS_URL); without one they live and end with 'tideline serve'")
	}
	return c.WithStores(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		if err := upToDate(ctx, stores); err != nil {
			return err
		}
		b, err := c.backend(stores, log, newMetrics())
		if err != nil {
			return err
		}
		return fn(b.home, b.directory)
	})
}

// serveAPI adds the API and the pages.
func (p *process) serveAPI(ctx context.Context, mux *http.ServeMux, b backend, generator *ids.Generator, hub *live.Hub) error {
	c := p.config
	called, err := b.api(c, generator, hub, p.log)
	if err != nil {
		return err
	}
	engine, err := graph.New(called, graph.Config{
		Introspection: !c.Production, Suggestions: !c.Production, Limits: c.limits(), Logger: p.log,
	})
	if err != nil {
		return err
	}
	api := &api{
		engine: engine, authenticate: b.sessions.Authenticate, metrics: p.metrics, log: p.log, timeout: c.RequestTimeout,
		quotas: c.quotas(), documents: newDocuments(c.PersistedCache), inFlight: semaphore.NewWeighted(max(costInFlight, int64(c.MaxCost))),
		beginning: newLine(beginAtOnce),
		maxBody:   int64(c.MaxBody), bodies: newBudget(max(bodyBudget, 4*int64(c.MaxBody))),
	}
	if c.TrustedDocuments != "" {
		if api.documents, err = newTrusted(ctx, c.TrustedDocuments, engine); err != nil {
			return err
		}
	}
	if c.RateLimit == "on" {
		api.limiter = newLimiter(p.stores.Redis, p.log, c.rates())
	}
	bounds := defaultSocketConfig
	bounds.Sockets = c.MaxSockets
	p.sockets = newSockets(api, bounds, c.AllowedOrigins)
	p.sockets.sessions = newSessions(b.sessions.Ended, p.log)
	p.base = append(p.base, p.sockets.sessions.run)
	p.metrics.countSockets(p.sockets.count)
	mux.Handle("/graphql", cors(c.AllowedOrigins, &graphqlHandler{api, p.sockets}))
	mux.Handle("/", web.Handler(web.Options{GraphiQL: c.graphiql()}))
	if !c.Production {
		mux.HandleFunc("GET /schema.graphql", serveSchema)
	}
	return nil
}

// serveSchema answers code generators, which else ask for it by introspection.
func serveSchema(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, graph.Schema) // a failure is the client's leaving
}

func (c Config) graphiql() bool { return c.GraphiQL == "on" && !c.Production }

// The bounds of HTTP connections. Sockets have their own.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeSlack        = 30 * time.Second // beyond Config.RequestTimeout
	idleTimeout       = 2 * time.Minute
	maxHeader         = 32 << 10

	// httpConnections is how many connections that are no sockets or streams a
	// process has at once, and httpPerAddress how many of them are of one address.
	// With a header, a small body and buffers each they come to a few hundred
	// megabytes.
	httpConnections = 4096
	httpPerAddress  = 3072
	streams         = 64 // of HTTP/2, per connection

	// costInFlight is the cost of all operations that execute at once: some
	// hundred megabytes at the worst.
	costInFlight = 500_000

	// beginAtOnce is how many subscriptions are begun at once: well below the
	// connections that a process has to Redis and to SQLite.
	beginAtOnce = 4
)

// admit is the listener with the bounds of connections, and TLS where there is
// a certificate. A worker answers its operator alone.
func (p *process) admit(l net.Listener) (net.Listener, error) {
	if !p.role.server {
		return l, nil
	}
	c := p.config
	var address *quota
	if c.RateLimit == "on" {
		address = newQuota(httpPerAddress)
	}
	l = newDoor(l, httpConnections, address, c.proxies())
	if c.TLSCert == "" {
		return l, nil
	}
	certificate, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}), nil
}

// run goes on until ctx ends or a part fails, then stops everything in order:
// readiness first, then the listener, sockets and jobs, and last what they need.
func (p *process) run(ctx context.Context) error {
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	work, workCtx := errgroup.WithContext(ctx)
	below, belowCtx := errgroup.WithContext(base)
	for _, part := range p.base {
		below.Go(func() error { return quiet(part(belowCtx)) })
	}
	for _, part := range p.work {
		work.Go(func() error { return quiet(part(workCtx)) })
	}
	work.Go(func() error { // a failure below ends the work above
		select {
		case <-belowCtx.Done():
			return errors.New("a part of the process has ended")
		case <-workCtx.Done():
			return nil
		}
	})
	server := &http.Server{
		Handler:           p.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      max(p.config.RequestTimeout, accountTimeout) + writeSlack,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withConn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
	}
	if p.listener != nil {
		work.Go(func() error {
			if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
	}
	work.Go(func() error {
		<-workCtx.Done()
		p.health.stopping.Store(true)
		p.log.InfoContext(ctx, "stopping", "grace", p.config.ShutdownGrace.String())
		grace, cancel := context.WithTimeout(base, p.config.ShutdownGrace)
		defer cancel()
		var closing errgroup.Group
		closing.Go(func() error { return server.Shutdown(grace) })
		if p.sockets != nil {
			closing.Go(func() error { return p.sockets.shutdown(grace) })
		}
		if err := closing.Wait(); err != nil {
			p.log.WarnContext(ctx, "work in hand was cut off", "err", err)
			return server.Close()
		}
		return nil
	})
	err := work.Wait()
	stopBase()
	return errors.Join(below.Wait(), err)
}

// quiet is err, unless it only says that the process was told to stop.
func quiet(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// announce tells where everything is.
func (p *process) announce(out io.Writer) {
	if p.listener == nil {
		p.log.Info("worker runs")
		return
	}
	addr := p.listener.Addr().(*net.TCPAddr)
	host := addr.String()
	if addr.IP.IsUnspecified() {
		host = fmt.Sprintf("localhost:%d", addr.Port)
	}
	s := ""
	if p.config.TLSCert != "" && p.role.server {
		s = "s"
	}
	if p.config.LogFormat == "json" || !p.role.server {
		p.log.Info("listening", "url", "http"+s+"://"+host+"/", "addr", addr.String())
		return
	}
	graphiql := "off"
	if p.config.graphiql() {
		graphiql = "http" + s + "://" + host + "/graphiql"
	}
	redis := "inside this process"
	if !p.stores.Embedded {
		redis = "connected"
	}
	fmt.Fprintf(out, `Tideline runs. Ctrl-C stops it.
  App       http%[5]s://%[1]s/
  GraphiQL  %[2]s
  API       http%[5]s://%[1]s/graphql  (WebSocket: ws%[5]s://%[1]s/graphql)
  Database  %[3]s; Redis %[4]s
`, host, graphiql, p.database(), redis, s)
}

func (p *process) database() string {
	if p.config.DatabaseURL == "" {
		return "SQLite in " + p.config.DataDir
	}
	return p.stores.Dialect
}
