package home

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/timeline"
)

// buildAttempts bounds how many times a build reads SQL if posts are removed meanwhile.
const buildAttempts = 5

// builders is how many feeds a process builds at the same time, for streams that begin and in the
// background. waitingBuilds is how many may wait, each feed once. After a wipe or a failover
// every reader asks for a build: SQL then answers the reads, and the builds of a process take
// four connections.
//
// A build is given up if the queue is full, or if it waits for so long that another builder may
// have replaced it. The user's next read requests the build again, and is complete without it.
const (
	builders      = 4
	waitingBuilds = 1024
)

// buildLimit is the longest that a background build may take.
const buildLimit = time.Minute

// builder fills feeds from SQL.
type builder struct {
	feeds    *timeline.Feeds
	visits   *timeline.Visits
	active   *timeline.ActiveUsers
	log      *slog.Logger
	requests chan buildRequest
	waiting  sync.Map // timeline.Key of each waiting feed whose build has not begun
	turns    chan struct{}
}

// buildRequest asks for a feed to be built. begun is the build of the feed, if the requester has
// already opened one.
type buildRequest struct {
	feed  cachedFeed
	begun *timeline.Build
}

func newBuilder(tl *timeline.Store, log *slog.Logger) *builder {
	return &builder{
		feeds: tl.Feeds, visits: tl.Visits, active: tl.Active, log: log,
		requests: make(chan buildRequest, waitingBuilds), turns: make(chan struct{}, builders),
	}
}

// soon requests a build in the background.
func (b *builder) soon(feed cachedFeed, begun *timeline.Build) {
	if begun == nil {
		if _, waits := b.waiting.LoadOrStore(feed.key, nil); waits {
			return
		}
	}
	select {
	case b.requests <- buildRequest{feed, begun}:
	default: // the next read asks again
		b.waiting.Delete(feed.key)
	}
}

// now runs a build that the caller has begun and waits for it, as long as a page waits for Redis.
// That includes waiting for a turn. If the build fails or takes longer, ready is false and the
// build is requested in the background.
func (b *builder) now(ctx context.Context, feed cachedFeed, begun *timeline.Build) (ready bool) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	err := b.inTurn(ctx, func() error { return b.build(ctx, feed, begun) })
	if err != nil {
		b.soon(feed, begun)
	}
	return err == nil
}

// inTurn waits for a turn and calls build during the turn.
func (b *builder) inTurn(ctx context.Context, build func() error) error {
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turns }()
	return build()
}

// BuildInbox fills the inbox of an active user from SQL, up to its cap, if it is missing and no
// other builder is at work. It misses no post that is written meanwhile.
//
// Cost: as a first page of cap posts without an inbox.
func (rd *Reader) BuildInbox(ctx context.Context, user int64) error {
	return rd.builder.build(ctx, rd.inbox(user), nil)
}

// BuildOutbox does the same as BuildInbox for the author's outbox.
//
// Cost: two queries, each of as many posts as an outbox holds, and at most four round trips.
func (rd *Reader) BuildOutbox(ctx context.Context, author int64) error {
	return rd.builder.build(ctx, rd.outbox(author), nil)
}

func (b *builder) build(ctx context.Context, feed cachedFeed, begun *timeline.Build) error {
	// Deliveries reach the feed from Begin on. So SQL is read only after Begin.
	if begun == nil {
		opened, started, err := b.feeds.Begin(ctx, feed.key)
		if err != nil || !started {
			return err
		}
		begun = &opened
	}
	// Pushes reach active users only, and Redis may have forgotten that the user is active. A
	// visit that makes the user active again drops the inbox first, so the inbox of an active
	// user has missed no push.
	if feed.key == timeline.Inbox(feed.user) {
		active, err := b.active.Check(ctx, []int64{feed.user})
		if err != nil {
			return errs.Wrap(err, "build an inbox")
		}
		if !active[0] {
			return errs.Wrap(b.feeds.Drop(ctx, feed.key), "build an inbox")
		}
	}
	build := *begun
	for range buildAttempts {
		all := timeline.Range{Limit: feed.cap}
		posts, err := visibility.Fill(ctx, feed.surface, feed.user, all, feed.ids)
		if err != nil {
			return err
		}
		floor := int64(0)
		if len(posts) == feed.cap {
			floor = posts[feed.cap-1].ID
		}
		ids := rows.PostIDs(posts)
		// A reader may have seen, from SQL, posts that were written meanwhile and are not
		// delivered yet. The next reader of this feed must not miss them.
		if len(ids) > 0 {
			newer, err := visibility.Fill(ctx, feed.surface, feed.user, timeline.Range{After: ids[0], Limit: feed.cap}, feed.ids)
			if err != nil {
				return err
			}
			ids = slices.Concat(rows.PostIDs(newer), ids)
		}
		done, err := b.feeds.Finish(ctx, &build, ids, floor)
		if errors.Is(err, timeline.ErrBuildLost) {
			return nil // the next read begins again
		}
		if done || err != nil {
			return err
		}
	}
	return b.feeds.Drop(ctx, feed.key)
}

// run builds the requested feeds, up to four at a time, until ctx ends.
func (b *builder) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range builders {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case r := <-b.requests:
					b.waiting.Delete(r.feed.key)
					err := b.inTurn(ctx, func() error {
						if r.begun != nil && b.feeds.Overdue(*r.begun) {
							return nil
						}
						building, cancel := context.WithTimeout(ctx, buildLimit)
						defer cancel()
						return b.build(building, r.feed, r.begun)
					})
					if err != nil && ctx.Err() == nil {
						b.log.WarnContext(ctx, "feed not built; reads go on in SQL", "error", err)
					}
				}
			}
		})
	}
	return g.Wait()
}
