// Package feed does what users do: they post, like, follow, block, mute, look
// through lists.
//
// Its invariants:
//
//   - A write and the job that follows from it commit together. Nothing is put into
//     Redis before the commit.
//   - The viewer's next read shows the viewer's own write: a mutation updates the
//     viewer's own feeds before it returns, the workers update everybody else's.
//
// The doc comment of an operation says what it costs. No cost grows with the number
// of all users: a write costs a handful of statements and a job, a read as much as
// its page has.
//
// Package feed/visibility decides who may see a post, feed/home keeps home
// timelines, feed/stream brings their changes live, and feed/account manages users.
package feed

import (
	"cmp"
	"errors"
	"log/slog"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/queue"
)

// Config configures a Feed. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Dialect    string // of DB: dialect.SQLite or dialect.Postgres
	Visibility *visibility.Reader
	Home       *home.Home
	Directory  *account.Directory
	Queue      *queue.Queue
	IDs        *ids.Generator
	// Webhooks records what happens for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox

	// LargeAudience is the follower count from which the pool for large jobs fans
	// out an author's posts, so that they do not delay those of others. Defaults to
	// DefaultLargeAudience.
	LargeAudience int
	// MaxText is how many characters a post may have. Defaults to DefaultMaxText.
	MaxText int
	// MaxPage is how many entries a page may have. Defaults to paging.DefaultMaxSize.
	MaxPage int
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// The defaults of Config, and the upper bound of MaxText: the longest text fits
// into a request's body of the default size however it is escaped.
const (
	DefaultLargeAudience = 10_000
	DefaultMaxText       = 5000
	MostMaxText          = 50_000
)

// Feed does what users do. It is safe for concurrent use.
type Feed struct {
	*finder
	*mutedWords
	cfg   Config
	db    *ent.Client
	posts *visibility.Reader
	home  *home.Home
}

// New returns a Feed. It fails when a required field is missing.
func New(cfg Config) (*Feed, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Visibility == nil || cfg.Home == nil || cfg.Directory == nil || cfg.Queue == nil || cfg.IDs == nil {
		return nil, errors.New("feed: DB, Dialect, Visibility, Home, Directory, Queue and IDs are required")
	}
	cfg.LargeAudience = cmp.Or(cfg.LargeAudience, DefaultLargeAudience)
	cfg.MaxText = cmp.Or(cfg.MaxText, DefaultMaxText)
	cfg.MaxPage = cmp.Or(cfg.MaxPage, paging.DefaultMaxSize)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Feed{
		finder: &finder{cfg, cfg.DB, cfg.Visibility, cfg.Home}, mutedWords: &mutedWords{cfg, cfg.DB, cfg.Visibility, cfg.Home},
		cfg: cfg, db: cfg.DB, posts: cfg.Visibility, home: cfg.Home,
	}, nil
}
