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
	"tideline/timeline"
)

// buildAttempts bounds how often a build reads SQL because a post was removed
// meanwhile.
const buildAttempts = 5

// A process builds so many feeds at a time, for streams that begin and in the background,
// where so many more may wait, each of them once. After a wipe or a failover every reader
// asks for a build: then SQL answers the reads, and four connections of each process build.
// A build that finds no room, or that waits for so long that another builder may have
// replaced it, is requested again by the user's next read, which is complete without it.
const (
	builders      = 4
	waitingBuilds = 1024
)

// buildLimit is the longest that a build in the background may take.
const buildLimit = time.Minute

// builder fills feeds from SQL when they are requested in the background.
type builder struct {
	tl       *timeline.Store
	log      *slog.Logger
	requests chan buildRequest
	waiting  sync.Map // timeline.Key of the feeds that wait and are not begun
	turns    chan struct{}
}

// buildRequest asks for a feed to be built. begun is its build, if the requester
// has opened it already.
type buildRequest struct {
	feed  cachedFeed
	begun *timeline.Build
}

// soon requests a feed in the background.
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

// now builds a feed that the caller has begun, and waits for it, its turn included, as long
// as a page waits for Redis. Ready is false when it was not done in that time, or failed:
// then it is requested in the background.
func (b *builder) now(ctx context.Context, feed cachedFeed, begun *timeline.Build) (ready bool) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	err := b.inTurn(ctx, func() error { return b.build(ctx, feed, begun) })
	if err != nil {
		b.soon(feed, begun)
	}
	return err == nil
}

// inTurn waits for one of the turns, and builds in it.
func (b *builder) inTurn(ctx context.Context, build func() error) error {
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turns }()
	return build()
}

// BuildInbox fills the inbox of an active user from SQL, up to its cap, if it is
// missing and not being built. It does not miss posts that are written meanwhile.
//
// Cost: as a first page without an inbox, of cap posts.
func (h *Home) BuildInbox(ctx context.Context, user int64) error {
	return h.builder.build(ctx, h.inbox(user), nil)
}

// BuildOutbox is BuildInbox of the author's outbox.
//
// Cost: two queries of as many posts as an outbox has, and four round trips at most.
func (h *Home) BuildOutbox(ctx context.Context, author int64) error {
	return h.builder.build(ctx, h.outbox(author), nil)
}

func (b *builder) build(ctx context.Context, feed cachedFeed, begun *timeline.Build) error {
	// From Begin on the feed takes deliveries; SQL is read only after that.
	if begun == nil {
		opened, started, err := b.tl.Begin(ctx, feed.key)
		if err != nil || !started {
			return err
		}
		begun = &opened
	}
	// SQL is read only of an active user: Redis may have forgotten that the user is
	// active. Then the call that makes the user active again has dropped the inbox
	// before it was begun here.
	if feed.key == timeline.Inbox(feed.user) {
		active, err := b.tl.Active(ctx, []int64{feed.user})
		if err != nil {
			return rows.Wrap("build an inbox", err)
		}
		if !active[0] {
			return rows.Wrap("build an inbox", b.tl.Drop(ctx, feed.key))
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
		// Posts that were written meanwhile and are not delivered yet may have been
		// shown from SQL: the next reader of the feed must not miss them.
		if len(ids) > 0 {
			newer, err := visibility.Fill(ctx, feed.surface, feed.user, timeline.Range{After: ids[0], Limit: feed.cap}, feed.ids)
			if err != nil {
				return err
			}
			ids = slices.Concat(rows.PostIDs(newer), ids)
		}
		done, err := b.tl.Finish(ctx, &build, ids, floor)
		if errors.Is(err, timeline.ErrBuildLost) {
			return nil // the next read begins again
		}
		if done || err != nil {
			return err
		}
	}
	return b.tl.Drop(ctx, feed.key)
}

// run builds the requested feeds, several at a time, until ctx ends.
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
						if r.begun != nil && b.tl.Overdue(*r.begun) {
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
