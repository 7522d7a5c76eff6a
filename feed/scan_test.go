package feed_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// crowded inserts rows of other users, enough in each table that the planner uses an index.
const crowded = `
INSERT INTO users (id, handle, name, password_hash, created_at) SELECT i, 'crowd' || i, 'Crowd ' || i, '-', now() FROM generate_series(1, 6000) i;
INSERT INTO posts (id, author_id, text, visibility) SELECT i, i, 'one of a crowd', 'PUBLIC' FROM generate_series(1, 6000) i;
INSERT INTO post_tags (post_id, tag) SELECT i, 'tide' FROM generate_series(1, 6000) i UNION ALL SELECT i, 'of' || i FROM generate_series(1, 6000) i;
INSERT INTO follows (follower_id, followee_id, created_at) SELECT i, 1 + (i + k) % 6000, now() FROM generate_series(1, 6000) i, generate_series(1, 2) k;
INSERT INTO likes (user_id, post_id) SELECT i, 1 + (i + k) % 6000 FROM generate_series(1, 6000) i, generate_series(1, 2) k;
INSERT INTO mutes (muter_id, muted_id, created_at) SELECT i, 1 + (i + 5) % 6000, now() FROM generate_series(1, 6000) i;
INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT i, 1 + (i + 9) % 6000, now() FROM generate_series(1, 6000) i;
INSERT INTO follow_requests (requester_id, target_id, created_at) SELECT i, 1 + (i + 11) % 6000, now() FROM generate_series(1, 6000) i;
INSERT INTO sessions (token_hash, user_id, created_at, expires_at) SELECT decode(md5(i::text), 'hex'), i, now(), now() + interval '1 day' FROM generate_series(1, 6000) i;
INSERT INTO muted_words (user_id, word, head, created_at) SELECT i, 'tide', 'tide', now() FROM generate_series(1, 6000) i;
INSERT INTO muted_conversations (user_id, root_id, created_at) SELECT i, i, now() FROM generate_series(1, 6000) i;
INSERT INTO read_markers (id, post_id) SELECT i, 0 FROM generate_series(1, 6000) i;
INSERT INTO deliveries (id) SELECT i FROM generate_series(1, 6000) i;
INSERT INTO idempotency_keys (user_id, key, post_id, created_at) SELECT i, 'k', i, now() FROM generate_series(1, 6000) i;
ANALYZE`

// No action of a user, and no job that follows from it, reads a whole table.
func TestNothingScans(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DatabaseURL: storagetest.PostgresURL(t), RedisURL: storagetest.StartRedis(t).URL()}
	s, watch := storagetest.Open(t, cfg), storagetest.Open(t, cfg)
	for statement := range strings.SplitSeq(crowded, ";") {
		_, err := watch.SQL.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	_, err := watch.SQL.ExecContext(t.Context(), "SELECT pg_stat_reset()")
	require.NoError(t, err)

	w := &world{feedtest.Idle(t, s, feedtest.Options{})}
	stop := w.Work()
	w.busyDay()
	w.Drain()
	_, err = feed.FoldCounters(w.Ctx, s.DB)
	require.NoError(t, err)
	_, err = w.Sessions.Purge(w.Ctx)
	require.NoError(t, err)
	_, err = feed.PurgeIdempotencyKeys(w.Ctx, s.DB, w.Now())
	require.NoError(t, err)
	stop()
	s.SQL.SetMaxIdleConns(0) // a connection reports its statistics when it closes
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, watch.SQL.QueryRowContext(t.Context(), "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'follows'").Scan(&n))
		return n > 0
	}, time.Minute, 10*time.Millisecond)

	rows, err := watch.SQL.QueryContext(t.Context(), "SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE seq_tup_read >= 6000")
	require.NoError(t, err)
	defer rows.Close()
	var scanned []string
	for rows.Next() {
		var table string
		var scans, tuples int
		require.NoError(t, rows.Scan(&table, &scans, &tuples))
		scanned = append(scanned, fmt.Sprintf("%s: %d times, %d rows", table, scans, tuples))
	}
	require.NoError(t, rows.Err())
	require.Empty(t, scanned)
}

// busyDay performs each action with a few users.
func (w *world) busyDay() {
	w.Helper()
	u := w.Users(6)
	ann, bob := u[0], u[1]
	yes := true
	do := func(_ any, err error) { w.Helper(); require.NoError(w, err) }
	for _, v := range u[1:] {
		w.Follow(v, ann)
		w.Follow(ann, v)
	}
	for range 3 {
		for _, v := range u {
			do(w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "#tide", IdempotencyKey: fmt.Sprint(v.ID, w.Now())}))
			do(w.Home.Timeline(w.Ctx, v, paging.Page{}, home.Latest))
		}
	}
	post, hers := w.Post(ann, schema.Mutuals), w.Post(bob, schema.Followers)
	do(w.Accounts.UpdateProfile(w.Ctx, u[5], account.Profile{ApprovesFollowers: &yes}))
	do(w.Feed.Follow(w.Ctx, bob, u[5].ID))
	do(w.Feed.AcceptFollower(w.Ctx, u[5], bob.ID))
	do(w.Feed.UpdatePost(w.Ctx, ann, post, feed.Edit{Text: new("#ebb #tide")}))
	do(w.Feed.LikePost(w.Ctx, bob, post))
	do(w.Feed.Mute(w.Ctx, ann, bob.ID))
	do(w.Feed.Unmute(w.Ctx, ann, bob.ID))
	do(w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "reply", ReplyTo: post}))
	do(w.Feed.MuteConversation(w.Ctx, ann, post))
	do(w.Feed.MuteConversation(w.Ctx, u[3], post))
	do(w.Feed.UnmuteConversation(w.Ctx, u[3], post))
	do(w.Feed.MutesConversation(w.Ctx, ann, []*ent.Post{{ID: post}}))
	do(w.Feed.Block(w.Ctx, ann, u[4].ID))
	do(w.Feed.Unblock(w.Ctx, ann, u[4].ID))
	do(w.Feed.Unfollow(w.Ctx, u[2], ann.ID))
	do(w.Feed.RemoveFollower(w.Ctx, ann, u[3].ID))
	do(w.Feed.SetVisibility(w.Ctx, ann, post, schema.Public))
	do(nil, w.Feed.DeletePost(w.Ctx, bob, hers))
	w.Drain()
	for _, v := range u {
		do(w.Home.Timeline(w.Ctx, v, paging.Page{}, home.Latest))
		do(w.Home.Timeline(w.Ctx, v, paging.Page{}, home.Ranked))
		do(w.Home.Unread.Count(w.Ctx, v))
		do(w.Feed.UserPosts(w.Ctx, v, ann.ID, paging.Page{}))
		do(w.Directory.Search(w.Ctx, "nobody has this name", paging.Page{}))
		do(w.Feed.TaggedPosts(w.Ctx, v, "tide", paging.Page{}))
		do(w.Feed.TaggedPosts(w.Ctx, v, "of77", paging.Page{}))
		do(w.Feed.PublicPosts(w.Ctx, v, paging.Page{}))
		do(w.Feed.Followers(w.Ctx, ann.ID, paging.Page{}))
		do(w.Feed.Following(w.Ctx, ann.ID, paging.Page{}))
		do(w.Feed.FollowRequests(w.Ctx, v, v.ID, paging.Page{}))
		do(w.Feed.Blocked(w.Ctx, v, v.ID, paging.Page{}))
		do(w.Feed.Muted(w.Ctx, v, v.ID, paging.Page{}))
		do(w.Feed.LikedPosts(w.Ctx, v, v.ID, paging.Page{}))
		do(w.Feed.MutedConversations(w.Ctx, v, v.ID, paging.Page{}))
		do(w.Feed.Suggestions(w.Ctx, v, nil))
		do(w.Feed.Relations(w.Ctx, v, []int64{ann.ID, bob.ID}))
		do(w.Directory.User(w.Ctx, "crowd77"))
	}
}
