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
	"log/slog"
	"time"

	"entgo.io/ent/dialect"
	"golang.org/x/sync/errgroup"

	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/audit"
	"tideline/feed/bulk"
	"tideline/feed/ids"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/fleet"
	"tideline/internal/trace"
	"tideline/queue"
	"tideline/server/machine"
	"tideline/storage"
	"tideline/storage/migration"
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
	stores, err := storage.Open(ctx, c.storage(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if err := c.migrate(ctx, stores); err != nil {
		return err
	}
	tracer, err := trace.Start(ctx, c.traces(role, log))
	if err != nil {
		return err
	}
	defer tracer.Stop(ctx)
	p, err := newProcess(ctx, c, role, stores, tracer, log)
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

func (c Config) migrate(ctx context.Context, stores *storage.Stores) error {
	if c.Migrate == "on" {
		return stores.Migrate(ctx)
	}
	return upToDate(ctx, stores)
}

// upToDate returns an error unless this program can use the database's schema. Migrations that only remove
// what older versions need may still be pending.
func upToDate(ctx context.Context, stores *storage.Stores) error {
	plan, err := stores.Pending(ctx)
	if err == nil && (plan.Fresh || len(plan.Of(migration.Expand)) > 0) {
		err = errors.New("the database's schema is not up to date: run 'tideline migrate'")
	}
	return err
}

// WithStores opens the stores for a command, and closes them when fn returns. If a running server has its
// Redis inside, it joins the stores of that server. Errors: fn's error, or an error of Run.
func (c Config) WithStores(ctx context.Context, console Console, fn func(*storage.Stores, *slog.Logger) error) error {
	return c.withStores(ctx, console, storage.Join, fn)
}

// WithStoresBeside is WithStores for a command that only looks at the stores of a running server. If that
// server has its Redis inside, Stores.Redis is nil.
func (c Config) WithStoresBeside(ctx context.Context, console Console, fn func(*storage.Stores) error) error {
	return c.withStores(ctx, console, storage.OpenBeside, func(stores *storage.Stores, _ *slog.Logger) error { return fn(stores) })
}

func (c Config) withStores(ctx context.Context, console Console,
	open func(context.Context, storage.Config, *slog.Logger) (*storage.Stores, error), fn func(*storage.Stores, *slog.Logger) error,
) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	log, err := newLogger(console.Log, c.LogFormat, c.LogLevel)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	stores, err := open(ctx, c.storage(), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	return fn(stores, log)
}

// WithSchema is WithSQL for any version of the schema. If create is set, it creates a missing SQLite file.
func (c Config) WithSchema(ctx context.Context, console Console, create bool, fn func(*storage.Stores, *slog.Logger) error) error {
	if create {
		return c.withStores(ctx, console, storage.MakeSQL, fn)
	}
	return c.withStores(ctx, console, storage.OpenSQL, fn)
}

// WithSQL opens only SQL for a command, and closes it when fn returns. The command works while Redis does not
// answer, and beside a server that has its Redis inside. Errors: there is no database, the schema is not up
// to date, or an error of WithStores.
func (c Config) WithSQL(ctx context.Context, console Console, fn func(*storage.Stores, *slog.Logger) error) error {
	return c.WithSchema(ctx, console, false, func(stores *storage.Stores, log *slog.Logger) error {
		if err := upToDate(ctx, stores); err != nil {
			return err
		}
		return fn(stores, log)
	})
}

// WithAudit lets a command inspect the home timelines that servers use, and find their users. Errors: Redis
// is embedded and no server runs, the schema is not up to date, or an error of WithStores.
func (c Config) WithAudit(ctx context.Context, console Console, fn func(*audit.Audit, *account.Directory) error) error {
	if err := c.existing(); err != nil {
		return err
	}
	return c.WithStores(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		if stores.Embedded {
			return fmt.Errorf("the feeds live and end with 'tideline serve', which does not run on the data directory %s: start it, or set --redis-url (TIDELINE_REDIS_URL) to the Redis that servers share", c.DataDir)
		}
		if err := upToDate(ctx, stores); err != nil {
			return err
		}
		b, err := c.backend(stores, log, newMetrics(), nil)
		if err != nil {
			return err
		}
		return fn(audit.New(b.home), b.directory)
	})
}

// WithCounters lets a command compare counters with the rows that they count. Errors: the errors of WithSQL.
func (c Config) WithCounters(ctx context.Context, console Console, fn func(*audit.Counters) error) error {
	return c.WithSQL(ctx, console, func(stores *storage.Stores, _ *slog.Logger) error { return fn(audit.NewCounters(stores.DB)) })
}

// WithSessions lets a command end sessions. Running servers are told. Errors: the schema is not up to
// date, or an error of WithStores.
func (c Config) WithSessions(ctx context.Context, console Console, fn func(*session.Store, *account.Directory) error) error {
	return c.withBackend(ctx, console, func(b backend, _ *slog.Logger) error { return fn(b.sessions, b.directory) })
}

// WithAccounts lets a command change accounts, as WithSessions lets it end sessions.
func (c Config) WithAccounts(ctx context.Context, console Console, fn func(*account.Accounts) error) error {
	return c.withBackend(ctx, console, func(b backend, _ *slog.Logger) error { return fn(b.accounts) })
}

// WithModeration lets a command grant roles and suspend users. Errors: the errors of WithSessions.
func (c Config) WithModeration(ctx context.Context, console Console, fn func(*moderation.Moderation, *account.Accounts) error) error {
	return c.withBackend(ctx, console, func(b backend, _ *slog.Logger) error {
		m, err := moderation.New(moderation.Config{DB: b.stores.DB, Accounts: b.accounts, MaxPage: c.MaxPage})
		if err != nil {
			return err
		}
		return fn(m, b.accounts)
	})
}

// WithJobs lets a command act on jobs and record that in the audit log. Errors: the errors of WithSessions.
func (c Config) WithJobs(ctx context.Context, console Console, fn func(*queue.Queue, *moderation.Moderation) error) error {
	return c.withBackend(ctx, console, func(b backend, _ *slog.Logger) error {
		m, err := moderation.New(moderation.Config{DB: b.stores.DB, Accounts: b.accounts, MaxPage: c.MaxPage})
		if err != nil {
			return err
		}
		return fn(b.jobs, m)
	})
}

// WithKeys lets a command manage API keys. Errors: the errors of WithSQL.
func (c Config) WithKeys(ctx context.Context, console Console, fn func(*apikey.Keys) error) error {
	return c.WithSQL(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		keys, err := c.keys(stores, log)
		if err != nil {
			return err
		}
		return fn(keys)
	})
}

// WithWebhooks lets a command manage webhooks. Errors: the errors of WithSQL.
func (c Config) WithWebhooks(ctx context.Context, console Console, fn func(*webhook.Deliverer) error) error {
	return c.WithSQL(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		deliverer, err := c.deliverer(stores, log, newMetrics())
		if err != nil {
			return err
		}
		return fn(deliverer)
	})
}

// WithJobList lets a command list jobs without running, retrying or enqueueing any.
// Errors: the errors of WithSQL.
func (c Config) WithJobList(ctx context.Context, console Console, fn func(*queue.Queue) error) error {
	return c.WithSQL(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		q, err := queue.New(stores.DB, nil, queue.Config{Logger: log})
		if err != nil {
			return err
		}
		return fn(q)
	})
}

// WithFleet lets a command list the running processes, count the waiting jobs, and pause workers.
// Errors: the errors of WithSQL.
func (c Config) WithFleet(ctx context.Context, console Console, fn func(*fleet.Fleet, *queue.Queue) error) error {
	return c.WithSQL(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		q, err := queue.New(stores.DB, nil, queue.Config{Logger: log})
		if err != nil {
			return err
		}
		return fn(fleet.New(stores.DB, time.Now), q)
	})
}

// existing returns an error unless the settings are allowed and the database exists, so that a command
// does not create an empty one.
func (c Config) existing() error {
	if err := c.Validate(); err != nil {
		return err
	}
	return c.storage().Exists()
}

func (c Config) withBackend(ctx context.Context, console Console, fn func(backend, *slog.Logger) error) error {
	if err := c.existing(); err != nil {
		return err
	}
	return c.WithStores(ctx, console, func(stores *storage.Stores, log *slog.Logger) error {
		if err := upToDate(ctx, stores); err != nil {
			return err
		}
		b, err := c.backend(stores, log, newMetrics(), nil)
		if err != nil {
			return err
		}
		return fn(b, log)
	})
}

// WithBulk lets a command write many rows beside running servers, until fn's context ends. analyze updates
// the statistics of PostgreSQL for tables that have grown. Errors: the errors of WithSessions.
func (c Config) WithBulk(ctx context.Context, console Console, fn func(ctx context.Context, b *bulk.Bulk, analyze func(context.Context) error) error) error {
	return c.withBackend(ctx, console, func(b backend, log *slog.Logger) error {
		generator, err := ids.Open(ctx, ids.Config{DB: b.stores.DB, Logger: log})
		if err != nil {
			return err
		}
		rows, err := b.bulk(c, generator, log)
		if err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		leased, release := context.WithCancel(ctx)
		g.Go(func() error { return generator.Run(leased) })
		g.Go(func() error {
			defer release()
			return fn(ctx, rows, func(ctx context.Context) error {
				if b.stores.Dialect != dialect.Postgres {
					return nil
				}
				_, err := b.stores.SQL.ExecContext(ctx, "ANALYZE users, posts, external_posts, follows, follow_requests, blocks, likes")
				return err
			})
		})
		return g.Wait()
	})
}
