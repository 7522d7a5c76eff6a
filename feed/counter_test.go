package feed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage/storagetest"
)

// locked runs do while another transaction holds a lock on the row. The lock must not delay do.
func (w *world) locked(do func(ctx context.Context), how string, tables map[string]int64) {
	w.Helper()
	tx, err := w.Stores.SQL.BeginTx(w.Ctx, nil)
	require.NoError(w, err)
	defer func() { require.NoError(w, tx.Rollback()) }()
	for table, id := range tables {
		var got int64
		require.NoError(w, tx.QueryRowContext(w.Ctx, fmt.Sprintf("SELECT id FROM %s WHERE id = %d FOR %s", table, id, how)).Scan(&got))
	}
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute) // to fail if do waits for the lock
	defer cancel()
	do(ctx)
}

// onPostgres runs the test on PostgreSQL, which locks rows, without workers.
func onPostgres(t *testing.T, test func(w *world)) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		if w.Stores.Dialect != dialect.Postgres {
			w.Skip("SQLite has one writer at a time")
		}
		test(&world{World: w})
	})
}

// A follow of a user and a like of a post wait neither for each other nor for the author's posts,
// and they return the current counters.
func TestFollowsAndLikesDoNotWaitForTheRow(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(w *world) {
		u := w.Users(4)
		star, fan := u[0], u[1]
		post := w.Post(star, schema.Public)
		followers := func(n int) {
			w.Helper()
			found, err := w.Directory.Users(w.Ctx, []int64{star.ID})
			require.NoError(w, err)
			require.Equal(w, n, found[0].FollowerCount)
		}
		likes := func(n int) {
			w.Helper()
			p, err := w.Feed.Post(w.Ctx, fan, post)
			require.NoError(w, err)
			require.Equal(w, n, p.LikeCount)
			c, err := w.Feed.UserPosts(w.Ctx, fan, star.ID, paging.Page{})
			require.NoError(w, err)
			require.Equal(w, n, c.Edges[0].Node.LikeCount)
		}
		w.locked(func(ctx context.Context) {
			for i, v := range u[1:] {
				found, err := w.Feed.Follow(ctx, v, star.ID)
				require.NoError(w, err)
				require.Equal(w, i+1, found.FollowerCount)
				followers(i + 1)
				p, err := w.Feed.LikePost(ctx, v, post)
				require.NoError(w, err)
				require.Equal(w, i+1, p.LikeCount)
				likes(i + 1)
			}
			found, err := w.Feed.Unfollow(ctx, fan, star.ID)
			require.NoError(w, err)
			require.Equal(w, 2, found.FollowerCount)
			p, err := w.Feed.UnlikePost(ctx, fan, post)
			require.NoError(w, err)
			require.Equal(w, 2, p.LikeCount)
		}, "NO KEY UPDATE", map[string]int64{"users": star.ID, "posts": post})
		for _, folded := range []int{2, 0} {
			followers(2)
			likes(2)
			n, err := feed.FoldCounters(w.Ctx, w.Stores.DB)
			require.NoError(w, err)
			require.Equal(w, folded, n)
		}
		require.Equal(w, 2, w.Stores.DB.User.GetX(w.Ctx, star.ID).FollowerCount)
		require.Equal(w, 2, w.Stores.DB.Post.GetX(w.Ctx, post).LikeCount)
		w.Follow(fan, star)
		require.Equal(w, 3, w.Stores.DB.User.GetX(w.Ctx, star.ID).FollowerCount, "nobody else, no delta")
		w.counted()
	})
}

// A mute takes no lock. An operation that changes nothing takes no lock and writes nothing.
func TestNoOpsTakeNoLock(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(w *world) {
		u := w.Users(3)
		me, other, stranger := u[0], u[1], u[2]
		post, unliked := w.Post(other, schema.Public), w.Post(stranger, schema.Public)
		w.Follow(me, other)
		_, err := w.Feed.LikePost(w.Ctx, me, post)
		require.NoError(w, err)
		w.locked(func(ctx context.Context) {
			for range 2 {
				_, err := w.Feed.Mute(ctx, me, other.ID)
				require.NoError(w, err)
			}
		}, "NO KEY UPDATE", map[string]int64{"users": other.ID})
		w.locked(func(ctx context.Context) {
			for name, change := range map[string]func() error{
				"follow":          func() error { _, err := w.Feed.Follow(ctx, me, other.ID); return err },
				"unfollow":        func() error { _, err := w.Feed.Unfollow(ctx, me, stranger.ID); return err },
				"remove follower": func() error { _, err := w.Feed.RemoveFollower(ctx, me, other.ID); return err },
				"unblock":         func() error { _, err := w.Feed.Unblock(ctx, me, other.ID); return err },
				"mute":            func() error { _, err := w.Feed.Mute(ctx, me, other.ID); return err },
				"unmute":          func() error { _, err := w.Feed.Unmute(ctx, me, stranger.ID); return err },
				"like":            func() error { _, err := w.Feed.LikePost(ctx, me, post); return err },
				"unlike":          func() error { _, err := w.Feed.UnlikePost(ctx, me, unliked); return err },
			} {
				fewest := 100
				for range 5 { // background queries, which run every few seconds, must not count
					asked := storagetest.CountQueries(w.Stores)
					require.NoError(w, change(), name)
					fewest = min(fewest, asked())
				}
				require.LessOrEqual(w, fewest, 2, name)
			}
		}, "UPDATE", map[string]int64{"users": other.ID, "posts": post})
		w.locked(func(ctx context.Context) {
			_, err := w.Feed.LikePost(ctx, me, post)
			require.NoError(w, err)
		}, "UPDATE", map[string]int64{"users": me.ID})
	})
}

// A follow waits for a concurrent block between the same two users, in either direction, and then
// fails because of it.
func TestChangesOfOnePairWaitForEachOther(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(w *world) {
		u := w.Users(2)
		tx, err := w.Stores.DB.Tx(w.Ctx)
		require.NoError(w, err)
		require.NoError(w, rows.LockPair(w.Ctx, tx, dialect.Postgres, u[0].ID, u[1].ID))
		followed := make(chan error, 1)
		go func() { _, err := w.Feed.Follow(w.Ctx, u[1], u[0].ID); followed <- err }()
		require.Eventually(w, func() bool {
			var waiting int
			query := "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
			require.NoError(w, w.Stores.SQL.QueryRowContext(w.Ctx, query).Scan(&waiting))
			return waiting == 1
		}, time.Minute, time.Millisecond)
		require.NoError(w, tx.Block.Create().SetBlockerID(u[0].ID).SetBlockedID(u[1].ID).Exec(w.Ctx))
		require.NoError(w, tx.Commit())
		require.Equal(w, refusal.Forbidden, refusal.CodeOf(<-followed))
	})
}

// Counters are always exact for everybody, while they change, are folded and are locked.
func TestCountersAreExactWhileTheyAreFolded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(5)
		star, post := u[0], w.Post(u[0], schema.Public)
		ctx, done := context.WithCancel(w.Ctx)
		var folding, writing sync.WaitGroup
		for range 2 {
			folding.Go(func() {
				for ctx.Err() == nil {
					if _, err := feed.FoldCounters(ctx, w.Stores.DB); err != nil && ctx.Err() == nil {
						w.Errorf("fold: %v", err)
						return
					}
				}
			})
		}
		folding.Go(func() { // the author's posts lock the row, too
			for ctx.Err() == nil {
				if _, err := w.Feed.CreatePost(w.Ctx, star, feed.Draft{Text: "x"}); err != nil {
					w.Errorf("post: %v", err)
					return
				}
			}
		})
		for _, v := range u[1:] {
			writing.Go(func() {
				for range 5 {
					if err := w.everyChange(v, star, post); err != nil {
						w.Errorf("change: %v", err)
						return
					}
				}
			})
		}
		writing.Wait()
		done()
		folding.Wait()
		w.counted()
	})
}

// everyChange follows and likes, and undoes both. Including the viewer's own follow or like, each
// counter is between one and four.
func (w *world) everyChange(v, star session.Viewer, post int64) error {
	found, err := w.Feed.Follow(w.Ctx, v, star.ID)
	if err == nil && (found.FollowerCount < 1 || found.FollowerCount > 4) {
		err = fmt.Errorf("%d followers", found.FollowerCount)
	}
	if err != nil {
		return err
	}
	p, err := w.Feed.LikePost(w.Ctx, v, post)
	if err == nil && (p.LikeCount < 1 || p.LikeCount > 4) {
		err = fmt.Errorf("%d likes", p.LikeCount)
	}
	if err != nil {
		return err
	}
	if _, err = w.Feed.UnlikePost(w.Ctx, v, post); err != nil {
		return err
	}
	_, err = w.Feed.Unfollow(w.Ctx, v, star.ID)
	return err
}
