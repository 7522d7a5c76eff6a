package feed_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/internal/rows"
	"tideline/storage/storagetest"
)

// A write that waits in a circle with another transaction is not lost where PostgreSQL
// undoes it: it is done once more.
func TestUndoneWritesAreDoneOnceMore(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Real(t), feedtest.Options{})
	ann := w.User("ann")
	old := w.Post(ann, "old")
	for name, c := range map[string]struct {
		first, second string // the locks that the other transaction takes, in another order than the write
		write         func() error
	}{
		"one statement": {
			"LOCK TABLE posts IN SHARE ROW EXCLUSIVE MODE", "LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE",
			func() error {
				_, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "new"})
				return err
			},
		},
		"a transaction": {
			"SELECT 1 FROM posts FOR NO KEY UPDATE", "SELECT 1 FROM users FOR NO KEY UPDATE",
			func() error {
				_, err := w.Feed.SetVisibility(w.Ctx, ann, old, schema.Followers)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for undone := false; !undone; {
				other, err := w.Stores.SQL.BeginTx(w.Ctx, nil)
				require.NoError(t, err)
				_, err = other.ExecContext(w.Ctx, c.first)
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- c.write() }()
				require.Eventually(t, func() bool {
					var waiting int
					err := w.Stores.SQL.QueryRowContext(w.Ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waiting)
					return err == nil && waiting > 0
				}, time.Minute, 2*time.Millisecond)
				_, err = other.ExecContext(w.Ctx, c.second)
				// Who waited longer is undone: the write, unless the machine was busy for a second.
				require.True(t, err == nil || rows.Undone(err), "%v", err)
				undone = err == nil
				require.NoError(t, other.Rollback())
				require.NoError(t, <-done)
			}
		})
	}
}
