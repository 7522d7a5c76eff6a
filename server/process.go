package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"

	"tideline/feed/login"
	"tideline/graph"
	"tideline/internal/fleet"
	"tideline/internal/trace"
	"tideline/server/admin"
	"tideline/server/backend"
	"tideline/server/limit"
	"tideline/server/metrics"
	"tideline/server/transport"
	"tideline/server/wire"
	"tideline/storage"
	"tideline/web"
	"tideline/workers"
)

// process is a running process with all its parts.
type process struct {
	*backend.Backend
	config   Config
	role     Role
	tracer   *trace.Tracer // nil: nothing is traced
	log      *slog.Logger
	metrics  *metrics.Metrics
	health   *health
	limits   *limit.Limits
	api      *transport.Handler // nil in a worker
	handler  http.Handler       // served on listener
	listener net.Listener       // nil in a worker without an address
	admin    http.Handler       // for operators; nil without AdminAddr
	page     *admin.Page        // served by admin; nil in a worker

	// work ends when the process is told to stop. base ends after all of work has ended.
	work, base []func(context.Context) error
}

func newProcess(ctx context.Context, c Config, role Role, b *backend.Backend, m *metrics.Metrics, tracer *trace.Tracer, log *slog.Logger) (*process, error) {
	p, stores := &process{Backend: b, config: c, role: role, tracer: tracer, log: log, metrics: m}, b.Stores
	p.health = &health{log: log, observe: p.metrics.Checked, checks: []check{
		{name: "sql", ask: stores.SQL.PingContext, means: role.without("sql")},
		{name: "redis", ask: stores.CheckRedis, spare: role.server, means: role.without("redis")},
	}}
	if stores.HidesIncarnation {
		p.health.checks = append(p.health.checks, check{name: "rollback", means: "a feed that Redis has rolled back lacks posts until it is built again",
			ask: func(context.Context) error { return storage.ErrHidesIncarnation }})
	}
	p.base = append(p.base, p.health.watch, p.warn)
	if c.DatabaseURL == "" { // the database is in the data directory
		p.metrics.MeasureDisk(c.DataDir)
	}
	var err error
	if p.limits, err = limit.New(stores.Redis, c.limits(log)); err != nil {
		return nil, err
	}
	p.base = append(p.base, p.Home.Run)
	if role.server {
		p.health.checks = append(p.health.checks, check{name: "live", ask: p.Hub.Ready, spare: true, means: "subscribers of this server are told of posts when it is connected again"})
		p.base = append(p.base, p.Hub.Run, func(ctx context.Context) error { return p.Sessions.Run(ctx, p.Hub) }, p.Keys.Run, p.Outbox.Run)
		p.metrics.CountHub(p.Hub.Stats)
		p.work = append(p.work, workers.Canary{DB: stores.DB, Queue: p.Queue, Hub: p.Hub, Observe: p.metrics.Canary, Logger: log}.Run)
	}
	member := fleet.Config{DB: stores.DB, Version: ThisBuild().Version, Server: role.server, Subscriptions: p.metrics.Serving, Logger: log}
	if role.worker {
		config := p.WorkersConfig()
		config.PageSize, config.PartSize = c.FanOutPage, c.FanOutPart
		config.Observe, config.ObserveHealth = p.metrics.FanOut, p.metrics.Health
		w, err := workers.New(config)
		if err != nil {
			return nil, err
		}
		p.work = append(p.work, w.Run, p.Webhooks.Run)
		member.Workers = p.Queue
		p.metrics.CountWorkers(p.Queue)
	}
	mux := http.NewServeMux()
	p.health.serve(mux)
	var scraped http.Handler
	if c.Metrics == "on" {
		scraped = p.metrics.Handler(metrics.Asked{Queue: p.Queue.Stats, Webhooks: p.Webhooks.Stats, Stores: stores.State}, log)
	}
	if c.AdminAddr == "" && scraped != nil {
		mux.Handle("GET /metrics", scraped)
	}
	if role.server {
		if err := p.IDs.Lease(ctx); err != nil {
			return nil, err
		}
		p.base = append(p.base, p.IDs.Run)
		p.health.checks = append(p.health.checks, check{name: "ids", ask: p.IDs.Ready, means: "posts and sign-ups are refused"})
		p.metrics.CountIDs(p.IDs.Stats)
		if p.Issuers != nil {
			p.base = append(p.base, p.Issuers.Run)
			p.health.checks = append(p.health.checks, check{name: "issuers", ask: p.Issuers.Ready, means: "tokens of issuers may be refused"})
		}
		p.base = append(p.base, p.Counts.Run, p.Users.Run)
		if err := p.serveAPI(ctx, mux); err != nil {
			return nil, err
		}
		p.metrics.CountStreams(p.Streams.Stats)
	}
	if tracer != nil {
		p.metrics.CountSpans(tracer.Stats)
	}
	seen, err := fleet.NewMember(member)
	if err != nil {
		return nil, err
	}
	p.base = append(p.base, seen.Run)
	if role.server {
		p.page = p.adminPage(ctx, seen.ID())
	}
	if c.AdminAddr != "" {
		p.admin = p.adminHandler(scraped)
	}
	answers := secure(mux)
	if !role.server { // a worker's address is for operators too
		answers = p.ownNames(answers)
	}
	p.handler = transport.Linger(p.limits.ResolveAddress(transport.IdentifyRequests(answers)))
	return p, nil
}

// serveAPI adds the handlers of the API and of the pages.
func (p *process) serveAPI(ctx context.Context, mux *http.ServeMux) error {
	c := p.config
	engine, err := graph.New(graph.Backend{
		Accounts: p.Accounts, Bulk: p.Bulk, Counts: p.Counts, Users: p.Users, Directory: p.Directory, Feed: p.Feed, Conversations: p.Conversations, Home: p.Home, Keys: p.Keys, Login: p.Login,
		Moderation: p.Moderation, Sessions: p.Sessions, Streams: p.Streams, Avatars: c.AvatarHosts, MaxText: c.MaxText,
	}, graph.Config{
		Introspection: !c.Production, Suggestions: !c.Production, Limits: c.requestLimits(), Logger: p.log,
	})
	if err != nil {
		return err
	}
	config := c.transport()
	if c.App != "off" {
		config.AlwaysTrusted = web.Documents()
	}
	config.Engine, config.Authenticate, config.Recall, config.Watch = engine, p.Login.Authenticate, p.Login.Recall, p.Sessions.Watch
	config.Limits, config.Tracer, config.Logger = p.limits, p.tracer, p.log
	config.ObserveRequest, config.ObserveSubscriptions = p.metrics.Request, p.metrics.Subscribed
	config.ObserveSlowSocket = p.metrics.SlowSocket
	if p.api, err = transport.New(ctx, config); err != nil {
		return err
	}
	p.metrics.CountSockets(p.api.Sockets)
	compressed := func(next http.Handler) http.Handler { return next }
	if c.CompressHTTP == "on" {
		compressed = wire.Compress
	}
	mux.Handle("/graphql", compressed(p.api))
	mux.Handle("GET "+login.ExportPath, p.serveExport(p.Login, p.Accounts, longestDownload))
	mux.Handle("/", web.Handler(web.Options{NoApp: c.App == "off", GraphiQL: c.graphiql(), ImageHosts: c.AvatarHosts, Preview: p.preview})) // its files are compressed already
	if !c.Production {
		mux.Handle("GET /schema.graphql", compressed(http.HandlerFunc(serveSchema)))
	}
	return nil
}

// serveSchema serves the schema to code generators that would otherwise use introspection.
func serveSchema(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !wire.Share(w, r, []byte(graph.Schema)) {
		_, _ = io.WriteString(w, graph.Schema) // an error means that the client has left
	}
}

// run runs all parts until ctx ends or a part fails. Then it stops everything in order: readiness first, then
// the listener, sockets and jobs, and last the parts that they need.
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
	work.Go(func() error { // if a part of base ends, so does the work
		select {
		case <-belowCtx.Done():
			return errors.New("a part of the process has ended")
		case <-workCtx.Done():
			return nil
		}
	})
	server := p.httpServer(base)
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
		if p.api != nil {
			closing.Go(func() error { return p.api.Shutdown(grace) })
		}
		if err := closing.Wait(); err != nil {
			p.log.WarnContext(ctx, "work in hand was cut off", "error", err)
			return server.Close()
		}
		return nil
	})
	err := work.Wait()
	stopBase()
	return errors.Join(below.Wait(), err)
}

// quiet returns err, except context.Canceled, which only means that the process was told to stop.
func quiet(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// announce prints or logs the addresses of the process.
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
	app := "off"
	if p.config.App == "on" {
		app = "http" + s + "://" + host + "/"
	}
	redis := "inside this process"
	if !p.Stores.Embedded {
		redis = "connected"
	}
	fmt.Fprintf(out, `Tideline runs. Ctrl-C stops it.
  App       %[6]s
  GraphiQL  %[2]s
  API       http%[5]s://%[1]s/graphql  (WebSocket: ws%[5]s://%[1]s/graphql)
  Database  %[3]s; Redis %[4]s
`, host, graphiql, p.database(), redis, s, app)
}

func (p *process) database() string {
	if p.config.DatabaseURL == "" {
		return "SQLite in " + p.config.DataDir
	}
	return p.Stores.Dialect
}
