// Package feed implements the actions of users: they post, like, follow, block and mute, and read
// lists.
//
// Invariants:
//
//   - A write and the job that updates the feeds of other users commit in one transaction. Redis is
//     written only after the commit.
//   - A user's next read shows the user's own write. A mutation updates the viewer's own feeds
//     before it returns. Workers update the feeds of everybody else.
//
// The doc comment of each operation states its cost. No cost grows with the total number of
// users. A write costs a few statements and one job. The cost of a read depends on the size of
// its page.
//
// Package feed/visibility decides who may see a post. Package feed/home keeps home timelines,
// feed/stream sends their changes to connected clients, and feed/account manages users.
package feed

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/batch"
	"tideline/queue"
)

// Config configures a Feed. Fields are required unless they have a default.
type Config struct {
	DB         *ent.Client
	Dialect    string // of DB: dialect.SQLite or dialect.Postgres
	Visibility *visibility.Reader
	Home       *home.Home
	Directory  *account.Directory
	Queue      *queue.Queue
	IDs        *ids.Generator
	// Webhooks records events for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox

	// LargeAudience is the follower count from which an author's posts go to the pool for large
	// jobs, so that they do not delay the posts of other authors. Defaults to
	// DefaultLargeAudience.
	LargeAudience int
	// MaxText is the maximum length of a post in characters. Defaults to DefaultMaxText.
	MaxText int
	// MaxPage is the maximum number of entries on a page. Defaults to paging.DefaultMaxSize.
	MaxPage int
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock of changes that clients are told of. Defaults to time.Now.
	Now func() time.Time
}

// Defaults of Config, and the upper bound of MaxText. A text of MostMaxText characters fits into
// a request body of the default size, even if JSON escapes every character.
const (
	DefaultLargeAudience = 10_000
	DefaultMaxText       = 5000
	MostMaxText          = 50_000
)

// Feed implements the actions of users. It is safe for concurrent use.
type Feed struct {
	cfg    Config
	newest batch.Shared[newestList]
}

// New returns a Feed. It fails if a required field is missing.
func New(cfg Config) (*Feed, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Visibility == nil || cfg.Home == nil || cfg.Directory == nil || cfg.Queue == nil || cfg.IDs == nil {
		return nil, errors.New("feed: DB, Dialect, Visibility, Home, Directory, Queue and IDs are required")
	}
	cfg.LargeAudience = cmp.Or(cfg.LargeAudience, DefaultLargeAudience)
	cfg.MaxText = cmp.Or(cfg.MaxText, DefaultMaxText)
	cfg.MaxPage = cmp.Or(cfg.MaxPage, paging.DefaultMaxSize)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Feed{cfg: cfg}, nil
}
