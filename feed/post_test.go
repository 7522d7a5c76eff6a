package feed_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/storage"
	"tideline/storage/storagetest"
)

var errCrashed = errors.New("the process ended behind its commit")

// mortal is the database of a process that ends as soon as it has committed a
// transaction.
type mortal struct{ dialect.Driver }

func (d mortal) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.Driver.(entsql.ExecQuerier).QueryContext(ctx, query, args...)
}

func (d mortal) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := d.Driver.Tx(ctx)
	return mortalTx{tx}, err
}

type mortalTx struct{ dialect.Tx }

func (t mortalTx) Commit() error { return errors.Join(t.Tx.Commit(), errCrashed) }

// A process ends between the commit of a post and its author's own feeds. The client
// calls again, another process answers, and the author's next reads show the post: no
// worker need have done its job by then.
func TestARepeatedCallShowsThePostThatACrashLeft(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		crashing := newWorld(t, s, feedtest.Options{DB: ent.NewClient(ent.Driver(mortal{s.Driver}))})
		ann := w.User("ann")
		before := w.Post(ann, schema.Public)
		w.AwaitInbox(ann)
		d := feed.Draft{Text: "once", IdempotencyKey: "key"}
		_, err := crashing.Feed.CreatePost(w.Ctx, ann, d)
		require.ErrorIs(t, err, errCrashed)

		p, err := w.Feed.CreatePost(w.Ctx, ann, d)
		require.NoError(t, err)
		require.Equal(t, 2, s.DB.Post.Query().CountX(w.Ctx))
		require.Equal(t, []int64{p.ID, before}, w.Timeline(ann, 10))
		profile, err := w.Feed.UserPosts(w.Ctx, ann, ann.ID, paging.Page{})
		require.NoError(t, err)
		require.Equal(t, []int64{p.ID, before}, feedtest.PostIDs(profile))
	})
}

// A constraint that is not the idempotency key's is an error, and not a post that is
// nil.
func TestAnotherConstraintThanThatOfTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann := w.User("ann")
		_, err := s.SQL.ExecContext(w.Ctx, "CREATE UNIQUE INDEX no_text_twice ON posts (text)")
		require.NoError(t, err)
		_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "hello", IdempotencyKey: "first"})
		require.NoError(t, err)
		for _, key := range []string{"", "second"} {
			_, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "hello", IdempotencyKey: key})
			require.True(t, ent.IsConstraintError(err), "%v", err)
		}
	})
}
