package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"tideline/server/limit"
	"tideline/server/transport"
)

// Bounds of HTTP connections. Package transport has the bounds of sockets and streams.
const (
	readHeaderTimeout = 5 * time.Second
	writeSlack        = 30 * time.Second // beyond the longest request
	idleTimeout       = 2 * time.Minute
	maxHeader         = 32 << 10 // bytes
	streams           = 64       // HTTP/2 streams per connection
)

// listen opens the address of the role. The listener is nil if there is no address.
func (c Config) listen(ctx context.Context, role Role) (net.Listener, error) {
	if !role.server {
		return listenAt(ctx, c.WorkerAddr, "worker-addr")
	}
	return listenAt(ctx, c.Addr, "addr")
}

func listenAt(ctx context.Context, addr, setting string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		variable := EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
		return nil, fmt.Errorf("listen: %w; --%s, or %s, sets another address", err, setting, variable)
	}
	return listener, nil
}

// bound adds a bound on connections to the listener, and TLS if there is a certificate. The listener of a
// worker serves only operators and stays as it is.
func (p *process) bound(ctx context.Context, l net.Listener) (net.Listener, error) {
	if !p.role.server {
		return l, nil
	}
	l = p.limits.Listener(ctx, l)
	if p.config.TLSCert == "" {
		return l, nil
	}
	certificate, err := tls.LoadX509KeyPair(p.config.TLSCert, p.config.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	p.metrics.Certificate(certificate.Leaf.NotAfter)
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}), nil
}

// httpServer returns a server for the handler. Its requests end when ctx ends.
func (p *process) httpServer(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           p.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       transport.ReadTimeout,
		WriteTimeout:      p.config.transport().LongestRequest() + writeSlack,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       limit.WithConn,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
	}
}
