// Package backend builds the parts of Tideline on open stores.
//
// Servers, workers, commands and the fixtures of tests all call [New], so each part is connected to the others in
// one place only. New reads and writes nothing and starts nothing. The caller runs the parts that have a method
// Run, and takes a lease for [Config.IDs] before the first id is needed.
package backend

import (
	"cmp"
	"log/slog"
	"time"

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/audit"
	"tideline/feed/bulk"
	"tideline/feed/conversation"
	"tideline/feed/counts"
	"tideline/feed/home"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/feed/userstate"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/batch"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/timeline"
	"tideline/workers"
)

// Config has the settings of the parts. All fields except IDs are optional. A field that has the name of a part's
// own setting has the same meaning and default.
type Config struct {
	// IDs makes the ids of posts and accounts. Required.
	IDs *ids.Generator
	// Timelines configures feeds in Redis. Its clock defaults to Now.
	Timelines timeline.Config
	// Queue configures jobs, except for Owner, which New sets. Its logger and tracer default to Logger and Tracer.
	Queue  queue.Config
	Policy home.Policy // its MaxPage holds for all lists

	// Issuers, NoSignUp, NoPasswords and DeletionGrace (Grace) are fields of login.Config, Avatars is one of
	// account.Config, and SessionTTL is TTL of session.Config.
	Issuers                   *identity.Verifier
	NoSignUp, NoPasswords     bool
	Avatars                   account.AvatarHosts
	SessionTTL, DeletionGrace time.Duration

	LargeAudience, MaxText int             // fields of feed.Config
	CountsEvery            time.Duration   // Every of counts.Config and userstate.Config
	Outbox                 *webhook.Outbox // records events for other servers
	Reach                  webhook.Reach   // of webhook.Config

	// ObserveRead and ObserveDelivery are Observe of home.Config and of webhook.Config.
	ObserveRead     func(hit bool)
	ObserveDelivery func(webhook.Outcome, time.Duration)

	Tracer *trace.Tracer
	Logger *slog.Logger
	// Now is the clock of all parts, except for IDs and the queue.
	Now func() time.Time
}

// Backend has the parts of one process. If Stores.Redis is nil, only methods that use SQL alone work; the others
// panic.
type Backend struct {
	Stores     *storage.Stores
	IDs        *ids.Generator
	Timelines  *timeline.Store
	Queue      *queue.Queue
	Publisher  *live.Publisher
	Hub        *live.Hub
	Visibility *visibility.Reader
	Home       *home.Home
	Audit      *audit.Audit
	Directory  *account.Directory
	Keys       *apikey.Keys
	Sessions   *session.Store
	Issuers    *identity.Verifier // nil if there are none
	Accounts   *account.Accounts
	Login      *login.Login
	Feed       *feed.Feed
	// Conversations reads replies, reposts, quotes and mentions.
	Conversations *conversation.Conversations
	Bulk          *bulk.Bulk
	Counts        *counts.Counts
	Users         *userstate.Users
	Streams       *stream.Streams
	Moderation    *moderation.Moderation
	Outbox        *webhook.Outbox // nil if no events are recorded
	Webhooks      *webhook.Deliverer

	cfg Config
}

// New builds the parts. It fails if a setting is not allowed.
func New(s *storage.Stores, c Config) (b *Backend, err error) {
	if c.Timelines.Now == nil {
		c.Timelines.Now = c.Now
	}
	c.Queue.Owner = job.Owner
	c.Queue.Logger = cmp.Or(c.Queue.Logger, c.Logger)
	c.Queue.Tracer = cmp.Or(c.Queue.Tracer, c.Tracer)
	rdb, maxPage := batch.Client(s.Redis), c.Policy.MaxPage
	b = &Backend{
		Stores: s, IDs: c.IDs, Issuers: c.Issuers, Outbox: c.Outbox, cfg: c,
		Publisher:  live.NewPublisher(rdb, s.Sharded),
		Visibility: visibility.New(s.DB, s.Dialect),
		Directory:  account.NewDirectory(s.DB, s.Dialect, maxPage),
	}
	if b.Timelines, err = timeline.New(rdb, c.Timelines); err != nil {
		return nil, err
	}
	if b.Queue, err = queue.New(s.DB, s.Redis, c.Queue); err != nil {
		return nil, err
	}
	if b.Keys, err = apikey.New(apikey.Config{DB: s.DB, MaxPage: maxPage, Logger: c.Logger, Now: c.Now}); err != nil {
		return nil, err
	}
	if b.Webhooks, err = webhook.NewDeliverer(webhook.Config{
		DB: s.DB, Dialect: s.Dialect, Reach: c.Reach, Observe: c.ObserveDelivery, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	if b.Sessions, err = session.New(session.Config{
		DB: s.DB, Publisher: b.Publisher, Keys: b.Keys, TTL: c.SessionTTL, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	if b.Accounts, err = account.New(account.Config{
		DB: s.DB, Sessions: b.Sessions, Queue: b.Queue, Visibility: b.Visibility, Avatars: c.Avatars, Webhooks: c.Outbox, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	if b.Login, err = login.New(login.Config{
		DB: s.DB, Sessions: b.Sessions, Accounts: b.Accounts, IDs: c.IDs, Keys: b.Keys, Issuers: c.Issuers, NoSignUp: c.NoSignUp,
		NoPasswords: c.NoPasswords, Grace: c.DeletionGrace, Webhooks: c.Outbox, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	if b.Home, err = home.New(home.Config{
		DB: s.DB, Dialect: s.Dialect, Visibility: b.Visibility, Timelines: b.Timelines, Queue: b.Queue,
		Publisher: b.Publisher, Policy: c.Policy, Observe: c.ObserveRead, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	b.Audit = audit.New(b.Home)
	if b.Feed, err = feed.New(feed.Config{
		DB: s.DB, Dialect: s.Dialect, Visibility: b.Visibility, Home: b.Home, Directory: b.Directory, Queue: b.Queue,
		IDs: c.IDs, LargeAudience: c.LargeAudience, MaxText: c.MaxText, MaxPage: maxPage, Webhooks: c.Outbox, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	b.Conversations = conversation.New(s.DB, b.Visibility, b.Home.MaxPage())
	if b.Moderation, err = moderation.New(moderation.Config{
		DB: s.DB, Accounts: b.Accounts, Feed: b.Feed, Webhooks: c.Outbox, Now: c.Now, MaxPage: maxPage,
	}); err != nil {
		return nil, err
	}
	if b.Bulk, err = bulk.New(bulk.Config{
		DB: s.DB, Dialect: s.Dialect, Visibility: b.Visibility, Timelines: b.Timelines, Queue: b.Queue, IDs: c.IDs,
		Accounts: b.Accounts, MaxText: cmp.Or(c.MaxText, feed.DefaultMaxText), Logger: c.Logger,
	}); err != nil {
		return nil, err
	}
	if b.Counts, err = counts.New(counts.Config{
		Visibility: b.Visibility, Sessions: b.Sessions, Every: c.CountsEvery, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	if b.Users, err = userstate.New(userstate.Config{
		Visibility: b.Visibility, Directory: b.Directory, Sessions: b.Sessions, Every: c.CountsEvery, Logger: c.Logger, Now: c.Now,
	}); err != nil {
		return nil, err
	}
	b.Hub = live.NewHub(s.Redis, live.HubConfig{Sharded: s.Sharded, Mark: b.Home.Arrivals.ArrivedID, Tracer: c.Tracer, Logger: c.Logger})
	b.Streams, err = b.StreamsFrom(b.Hub)
	return b, err
}

// StreamsFrom returns streams that take their events from the hub.
func (b *Backend) StreamsFrom(hub *live.Hub) (*stream.Streams, error) {
	return stream.New(stream.Config{
		DB: b.Stores.DB, Visibility: b.Visibility, Home: b.Home, Topics: b.Timelines.Topics, Sessions: b.Sessions, Hub: hub, Logger: b.cfg.Logger, Now: b.cfg.Now,
	})
}

// WorkersConfig returns a configuration for workers that use the parts.
func (b *Backend) WorkersConfig() workers.Config {
	return workers.Config{
		DB: b.Stores.DB, Visibility: b.Visibility, Home: b.Home, Feed: b.Feed, Sessions: b.Sessions, Accounts: b.Accounts, Timelines: b.Timelines, Queue: b.Queue,
		Publisher: b.Publisher, Masters: b.Stores.CheckMasters, Logger: b.cfg.Logger, Now: b.cfg.Now,
	}
}

// Close closes the stores.
func (b *Backend) Close() error { return b.Stores.Close() }
