// Package server runs a Tideline process.
//
// It opens what the parts of Tideline need, starts the parts in order and stops them in order. It reports on
// them with health checks, metrics and the log.
//
// # Invariants
//
//   - A process with a setting that is not allowed does not start, and names the values that are.
//   - A process that is told to stop says so on /readyz, takes nothing new, finishes its work within
//     Config.ShutdownGrace, and closes its sockets with a code on which clients reconnect.
//   - Every failure is visible in /readyz, in a metric and in the log.
//
// Package transport serves clients, and package limit bounds them. This package knows no rule of the product.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tideline/internal/trace"
	"tideline/server/machine"
)

// Role says whether a process is a server, a worker or both.
type Role struct {
	server, worker bool
}

// The roles, named after their commands.
var (
	Serve  = Role{server: true, worker: true}
	Server = Role{server: true}
	Worker = Role{worker: true}
)

// String returns the name of the command that runs the role.
func (r Role) String() string {
	return map[Role]string{Serve: "serve", Server: "server", Worker: "worker"}[r]
}

// without describes the consequence while a store is missing.
func (r Role) without(store string) string {
	switch {
	case store == "sql":
		return "nothing is served, and no jobs are done"
	case r == Worker:
		return "no jobs are done: posts wait in the queue and reach neither timelines nor subscribers"
	case r == Server:
		return "pages come from SQL, rates are not limited, and subscribers are told of posts when Redis is back"
	}
	return "pages come from SQL, rates are not limited, no jobs are done, and subscribers are told of posts when Redis is back"
}

// Console has the outputs of a process: Out for a banner that people read, Log for the log.
type Console struct{ Out, Log io.Writer }

// Run runs a process of the role until ctx ends, then stops it in order. Errors: a setting is not allowed, a
// store does not answer, an address is in use; later, a part has failed that others need.
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
	// The address comes first: a second process that was started by mistake fails here,
	// before it touches anything.
	listener, err := c.listen(ctx, role)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	admin, err := listenAt(ctx, c.AdminAddr, "admin-addr")
	if err != nil {
		return fmt.Errorf("for operators: %w", err)
	}
	if admin != nil {
		defer admin.Close()
	}
	tracer, err := trace.Start(ctx, c.traces(role, log))
	if err != nil {
		return err
	}
	defer tracer.Stop(ctx)
	m := newMetrics()
	b, err := c.open(ctx, own, log, m, tracer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	p, err := newProcess(ctx, c, role, b, m, tracer, log)
	if err != nil {
		return err
	}
	if listener != nil {
		if p.listener, err = p.bound(ctx, listener); err != nil {
			return err
		}
	}
	if admin != nil {
		p.base = append(p.base, p.serveAdmin(admin))
		log.InfoContext(ctx, "operators are answered", "url", "http://"+admin.Addr().String()+"/", "addr", admin.Addr().String())
	}
	p.announce(console.Out)
	defer machine.CollectLess()()
	err = p.run(ctx)
	log.InfoContext(ctx, "stopped")
	return err
}
