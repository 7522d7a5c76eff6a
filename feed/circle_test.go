package feed_test

import (
	"testing"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/storage/storagetest"
)

// A write in a deadlock that PostgreSQL aborts is not lost: it runs once more.
func TestUndoneWritesAreDoneOnceMore(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Real(t), feedtest.Options{})
	ann := w.User("ann")
	old := w.Post(ann, "old")
	for name, c := range map[string]struct {
		first, second string // the locks of the other transaction, in the opposite order to the write
		write         func() error
	}{
		"new post": {
			"LOCK TABLE posts IN SHARE ROW EXCLUSIVE MODE", "LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE",
			func() error {
				_, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "new"})
				return err
			},
		},
		"changed post": {
			"SELECT 1 FROM posts FOR NO KEY UPDATE", "SELECT 1 FROM users FOR NO KEY UPDATE",
			func() error {
				_, err := w.Feed.SetVisibility(w.Ctx, ann, old, schema.Followers)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for !w.InCircle(t, c.first, c.second, c.write) {
				t.Log("the other transaction was undone")
			}
		})
	}
}
