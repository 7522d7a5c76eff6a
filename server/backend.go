package server

import (
	"log/slog"

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/bulk"
	"tideline/feed/counts"
	"tideline/feed/home"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/graph"
	"tideline/internal/batch"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
	"tideline/server/metrics"
	"tideline/storage"
	"tideline/timeline"
)

// backend has the parts that servers, workers and commands share.
type backend struct {
	stores     *storage.Stores
	timelines  *timeline.Store
	jobs       *queue.Queue
	publisher  *live.Publisher
	visibility *visibility.Reader
	home       *home.Home
	directory  *account.Directory
	keys       *apikey.Keys
	sessions   *session.Store
	accounts   *account.Accounts
	outbox     *webhook.Outbox
	webhooks   *webhook.Deliverer
}

func (c Config) backend(stores *storage.Stores, log *slog.Logger, m *metrics.Metrics, tracer *trace.Tracer) (b backend, err error) {
	b.stores = stores
	feeds := c.timelines()
	feeds.Reborn = func() {
		log.Warn("Redis was started again, or a replica took over: feeds are built again as they are read")
	}
	if b.timelines, err = timeline.New(batch.Client(stores.Redis), feeds); err != nil {
		return b, err
	}
	b.jobs, err = queue.New(stores.DB, stores.Redis, queue.Config{
		Pools:     map[queue.Pool]int{queue.Small: c.SmallWorkers, queue.Large: c.LargeWorkers, queue.Relations: c.RelationWorkers},
		StopGrace: c.ShutdownGrace,
		Owner:     job.Owner,
		Observe:   m.Attempt,
		Tracer:    tracer,
		Logger:    log,
	})
	if err != nil {
		return b, err
	}
	b.publisher = live.NewPublisher(batch.Client(stores.Redis), stores.Sharded)
	b.visibility = visibility.New(stores.DB, stores.Dialect)
	b.directory = account.NewDirectory(stores.DB, stores.Dialect, c.MaxPage)
	if b.keys, err = c.keys(stores, log); err != nil {
		return b, err
	}
	b.outbox = webhook.NewOutbox(stores.DB, log, nil)
	if b.webhooks, err = c.deliverer(stores, log, m); err != nil {
		return b, err
	}
	b.sessions, err = session.New(session.Config{DB: stores.DB, Publisher: b.publisher, Keys: b.keys, TTL: c.SessionTTL, Logger: log})
	if err != nil {
		return b, err
	}
	b.accounts, err = account.New(account.Config{DB: stores.DB, Sessions: b.sessions, Queue: b.jobs, Visibility: b.visibility, Avatars: c.AvatarHosts, Webhooks: b.outbox})
	if err != nil {
		return b, err
	}
	policy, err := c.policy()
	if err != nil {
		return b, err
	}
	b.home, err = home.New(home.Config{
		DB: stores.DB, Dialect: stores.Dialect, Visibility: b.visibility, Timelines: b.timelines, Queue: b.jobs,
		Publisher: b.publisher, Policy: policy, Observe: m.TimelineRead, Logger: log,
	})
	return b, err
}

// keys returns the manager of API keys.
func (c Config) keys(stores *storage.Stores, log *slog.Logger) (*apikey.Keys, error) {
	return apikey.New(apikey.Config{DB: stores.DB, MaxPage: c.MaxPage, Logger: log})
}

// deliverer returns the part that delivers and manages webhooks.
func (c Config) deliverer(stores *storage.Stores, log *slog.Logger, m *metrics.Metrics) (*webhook.Deliverer, error) {
	reach, err := c.webhookReach()
	if err != nil {
		return nil, err
	}
	return webhook.NewDeliverer(webhook.Config{DB: stores.DB, Dialect: stores.Dialect, Reach: reach, Observe: m.Webhook, Logger: log})
}

// verifier returns a verifier for the tokens of the configured issuers. It is nil if there are none.
func (c Config) verifier(log *slog.Logger) (*identity.Verifier, error) {
	issuers, err := identity.Read(c.Issuers)
	if err != nil || len(issuers) == 0 {
		return nil, err
	}
	return identity.New(identity.Config{Issuers: issuers, Logger: log}), nil
}

// api builds the parts that a server's resolvers call.
func (b backend) api(c Config, issuers *identity.Verifier, generator *ids.Generator, hub *live.Hub, log *slog.Logger) (a graph.Backend, err error) {
	a.Home, a.Directory, a.Keys, a.MaxText, a.Avatars = b.home, b.directory, b.keys, c.MaxText, c.AvatarHosts
	a.Sessions, a.Accounts = b.sessions, b.accounts
	if a.Login, err = login.New(login.Config{
		DB: b.stores.DB, Sessions: b.sessions, Accounts: b.accounts, IDs: generator, Keys: b.keys, Issuers: issuers,
		NoSignUp: c.SignUp == "off", NoPasswords: c.OwnAccounts == "off", Grace: c.DeletionGrace, Webhooks: b.outbox, Logger: log,
	}); err != nil {
		return a, err
	}
	a.Feed, err = feed.New(feed.Config{
		DB: b.stores.DB, Dialect: b.stores.Dialect, Visibility: b.visibility, Home: b.home, Directory: b.directory,
		Queue: b.jobs, IDs: generator, LargeAudience: c.LargeAudience, MaxText: c.MaxText, MaxPage: c.MaxPage, Logger: log,
		Webhooks: b.outbox,
	})
	if err != nil {
		return a, err
	}
	a.Moderation, err = moderation.New(moderation.Config{DB: b.stores.DB, Accounts: b.accounts, Feed: a.Feed, Webhooks: b.outbox, MaxPage: c.MaxPage})
	if err != nil {
		return a, err
	}
	if a.Bulk, err = b.bulk(c, generator, log); err != nil {
		return a, err
	}
	a.Counts, err = counts.New(counts.Config{Visibility: b.visibility, Sessions: b.sessions, Logger: log})
	if err != nil {
		return a, err
	}
	a.Streams, err = stream.New(stream.Config{
		DB: b.stores.DB, Visibility: b.visibility, Home: b.home, Sessions: b.sessions, Hub: hub, Logger: log,
	})
	return a, err
}

// bulk returns the part that imports many rows at once from other servers.
func (b backend) bulk(c Config, generator *ids.Generator, log *slog.Logger) (*bulk.Bulk, error) {
	return bulk.New(bulk.Config{
		DB: b.stores.DB, Dialect: b.stores.Dialect, Visibility: b.visibility, Timelines: b.timelines, Queue: b.jobs, IDs: generator, Accounts: b.accounts,
		MaxText: c.MaxText, Logger: log,
	})
}
