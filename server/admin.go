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

	"tideline/feed/audit"
	"tideline/graph"
	"tideline/internal/fleet"
	"tideline/server/admin"
	"tideline/server/transport"
	"tideline/web"
)

// adminShutdown bounds what is left of a profile or a scrape when the process ends.
const adminShutdown = time.Second

// adminHandler answers operators: health, the metrics when there are any, profiles, and
// at a server the admin page. The command line is not told, for it may have secrets.
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

// ownNames refuses requests whose Host is not a name of this address for operators: an IP
// address, localhost, the name of the machine, the one in the settings of the address, or one
// of AdminHosts. A page of another site whose name leads to this address, as by DNS rebinding,
// sends its own name.
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

// hostOf is the Host of a request without port, brackets and the dot at the end of a name.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// adminPage is the page of a server, whose streams end when ctx does.
func (p *process) adminPage(ctx context.Context, b backend, called graph.Backend, id int64) *admin.Page {
	return admin.New(ctx, admin.Config{
		Accounts: called.Accounts, Directory: b.directory, Moderation: called.Moderation, Audit: audit.New(b.home),
		Fleet: fleet.New(p.stores.DB, time.Now), Queue: b.jobs, Stores: p.stores, Limits: p.limits, Webhooks: b.webhooks.Stats,
		Ready: p.health.states, Metrics: p.metrics.Registry(), Process: id, Version: ThisBuild().Version, PostID: graph.PostID, Logger: p.log,
	})
}

// serveAdmin answers operators on the listener until ctx ends, also while the work
// stops. A profile takes as long as was asked for, so writes have no bound.
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
				_ = s.Close() // what is left is a profile
			}
		})
		defer ended()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve operators: %w", err)
		}
		return nil
	}
}

// HealthURL is where a process with these settings answers for itself: at AdminAddr
// where there is one, or else at Addr. An address of all interfaces is asked on
// loopback.
func (c Config) HealthURL() string {
	scheme, addr := "http", c.AdminAddr
	if addr == "" {
		addr = c.Addr
		if c.TLSCert != "" {
			scheme = "https"
		}
	}
	host, port, _ := net.SplitHostPort(addr) // was validated
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
