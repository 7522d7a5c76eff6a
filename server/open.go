package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/webhook"
	"tideline/internal/trace"
	"tideline/queue"
	"tideline/server/backend"
	"tideline/server/metrics"
	"tideline/storage"
	"tideline/storage/migration"
)

// Access says which stores a command opens, and what it requires of them.
type Access int

const (
	// SQLAndRedis opens both stores. If a running server has its Redis inside, it joins the stores of that server;
	// if no server runs, the command has a Redis of its own. The database must exist, with a current schema.
	SQLAndRedis Access = iota
	// CreateAll is SQLAndRedis, but creates a missing database, and migrates it if Config.Migrate allows it.
	CreateAll
	// SQL opens SQL only. The command works while Redis does not answer, and beside a server that has its Redis
	// inside. The database must exist, with a current schema.
	SQL
	// SQLAnySchema is SQL for any version of the schema.
	SQLAnySchema
	// CreateSQL is SQLAnySchema, but creates a missing SQLite file.
	CreateSQL
	// Beside opens the configured stores to look at them, for any version of the schema. It creates nothing. It
	// does not reach a Redis inside another process.
	Beside
	// own is CreateAll for a process that nobody may join.
	own
)

// Open opens the stores for a command and builds all parts on them. Stores.Redis of the result is nil for the
// accesses to SQL only, and for Beside without a configured Redis. The caller closes the result.
//
// Errors: a setting is not allowed; a store does not answer; the access does not get what it requires.
func Open(ctx context.Context, c Config, console Console, access Access) (*backend.Backend, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	log, err := newLogger(console.Log, c.LogFormat, c.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return c.open(ctx, access, log, newMetrics(), nil)
}

func (c Config) open(ctx context.Context, access Access, log *slog.Logger, m *metrics.Metrics, tracer *trace.Tracer) (*backend.Backend, error) {
	stores, err := c.openStores(ctx, access, log)
	if err != nil {
		return nil, err
	}
	settings, err := c.backend(log, m, tracer)
	if err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	settings.IDs = ids.New(ids.Config{DB: stores.DB, Logger: log})
	settings.Outbox = webhook.NewOutbox(stores.DB, log, nil)
	b, err := backend.New(stores, settings)
	if err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return b, nil
}

func (c Config) openStores(ctx context.Context, access Access, log *slog.Logger) (stores *storage.Stores, err error) {
	ready := func(context.Context, *storage.Stores) error { return nil }
	switch access {
	case SQLAndRedis:
		if err := c.storage().Exists(); err != nil {
			return nil, err
		}
		ready = upToDate
		stores, err = storage.Join(ctx, c.storage(), log)
	case CreateAll:
		ready = c.migrate
		stores, err = storage.Join(ctx, c.storage(), log)
	case SQL:
		ready = upToDate
		stores, err = storage.OpenSQL(ctx, c.storage(), log)
	case SQLAnySchema:
		stores, err = storage.OpenSQL(ctx, c.storage(), log)
	case CreateSQL:
		stores, err = storage.MakeSQL(ctx, c.storage(), log)
	case Beside:
		stores, err = storage.OpenBeside(ctx, c.storage(), log)
	default:
		ready = c.migrate
		stores, err = storage.Open(ctx, c.storage(), log)
	}
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, stores); err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return stores, nil
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

// backend returns the settings of the parts.
func (c Config) backend(log *slog.Logger, m *metrics.Metrics, tracer *trace.Tracer) (backend.Config, error) {
	policy, err := c.policy()
	if err != nil {
		return backend.Config{}, err
	}
	reach, err := c.webhookReach()
	if err != nil {
		return backend.Config{}, err
	}
	issuers, err := identity.Read(c.Issuers)
	if err != nil {
		return backend.Config{}, err
	}
	var verifier *identity.Verifier
	if len(issuers) > 0 {
		verifier = identity.New(identity.Config{Issuers: issuers, Logger: log})
	}
	return backend.Config{
		Timelines: c.timelines(log),
		Queue: queue.Config{
			Pools:     map[queue.Pool]int{queue.Small: c.SmallWorkers, queue.Large: c.LargeWorkers, queue.Relations: c.RelationWorkers},
			StopGrace: c.ShutdownGrace,
			Observe:   m.Attempt,
		},
		Policy: policy, Issuers: verifier, NoSignUp: c.SignUp == "off", NoPasswords: c.OwnAccounts == "off",
		Avatars: c.AvatarHosts, SessionTTL: c.SessionTTL, DeletionGrace: c.DeletionGrace,
		LargeAudience: c.LargeAudience, MaxText: c.MaxText, Reach: reach,
		ObserveRead: m.TimelineRead, ObserveDelivery: m.Webhook, Tracer: tracer, Logger: log,
	}, nil
}
