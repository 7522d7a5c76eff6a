package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"time"

	"tideline/graph"
	"tideline/internal/fleet"
	"tideline/server/admin"
	"tideline/server/transport"
	"tideline/web"
)

// adminShutdown bounds how long profiles and scrapes in progress may continue when the process ends.
const adminShutdown = time.Second

// adminHandler serves operators: health, metrics if they are enabled, profiles and, on a server, the admin
// page. It omits pprof's cmdline handler, because the command line may contain secrets.
func (p *process) adminHandler(scraped http.Handler) http.Handler {
	mux := http.NewServeMux()
	p.health.serve(mux)
	if scraped != nil {
		mux.Handle("GET /metrics", scraped)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	if p.page != nil {
		p.page.Register(mux)
		mux.Handle("/", web.Admin())
	}
	return p.limits.ResolveAddress(transport.IdentifyRequests(p.ownNames(secure(mux))))
}

// ownNames refuses requests whose Host is not a name of the operators' address. The names are any IP address,
// localhost, the machine's hostname, the host in AdminAddr or WorkerAddr, and AdminHosts. The check stops DNS
// rebinding: a page of another site whose name resolves to this address sends its own name as Host.
func (p *process) ownNames(next http.Handler) http.Handler {
	c := p.config
	names := append([]string{"localhost"}, c.AdminHosts...)
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	for _, addr := range []string{c.AdminAddr, c.WorkerAddr} {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			names = append(names, host)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostOf(r.Host)
		own := func(n string) bool { return n != "" && strings.EqualFold(n, name) }
		// Browsers always send a Host; some probes do not.
		if r.Host == "" || net.ParseIP(name) != nil || slices.ContainsFunc(names, own) {
			next.ServeHTTP(w, r)
			return
		}
		p.log.WarnContext(r.Context(), "a request to the address for operators is refused, for its Host is none of its names; TIDELINE_ADMIN_HOSTS adds names", "host", r.Host)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = io.WriteString(w, "This address for operators is not called so. TIDELINE_ADMIN_HOSTS adds names to it.\n")
	})
}

// hostOf returns the host of a request without port, brackets and the trailing dot of a name.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// adminPage returns the admin page of a server. Its streams end when ctx ends.
func (p *process) adminPage(ctx context.Context, id int64) *admin.Page {
	return admin.New(ctx, admin.Config{
		Sessions: p.Sessions, Login: p.Login, Directory: p.Directory, Moderation: p.Moderation, Audit: p.Audit,
		Fleet: fleet.New(p.Stores.DB, time.Now), Queue: p.Queue, Stores: p.Stores, Limits: p.limits, Webhooks: p.Webhooks.Stats,
		Ready: p.health.states, Metrics: p.metrics.Registry(), Process: id, Version: ThisBuild().Version, PostID: graph.PostID, Logger: p.log,
	})
}

// serveAdmin serves operators on the listener until ctx ends, also while the work stops. It has no write
// timeout, since a profile takes as long as its caller asks for.
func (p *process) serveAdmin(l net.Listener) func(context.Context) error {
	return func(ctx context.Context) error {
		s := &http.Server{
			Handler: p.admin, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readHeaderTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		}
		ended := context.AfterFunc(ctx, func() {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminShutdown)
			defer cancel()
			if s.Shutdown(late) != nil {
				_ = s.Close() // only a profile can still be in progress
			}
		})
		defer ended()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve operators: %w", err)
		}
		return nil
	}
}

// HealthURL returns the base URL of the health checks of a process with these settings: AdminAddr if it is
// set, else Addr. It replaces an address of all interfaces by the loopback address.
func (c Config) HealthURL() string {
	scheme, addr := "http", c.AdminAddr
	if addr == "" {
		addr = c.Addr
		if c.TLSCert != "" {
			scheme = "https"
		}
	}
	host, port, _ := net.SplitHostPort(addr) // Validate has checked it
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
