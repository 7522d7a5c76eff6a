package feed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

var errCrashed = errors.New("the process ended behind its commit")

// mortal is the database of a process that dies as soon as it has committed a transaction.
type mortal struct{ dialect.Driver }

func (d mortal) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := d.Driver.Tx(ctx)
	if err != nil {
		return nil, err
	}
	return mortalTx{tx, tx.(entsql.ExecQuerier)}, nil
}

type mortalTx struct {
	dialect.Tx
	entsql.ExecQuerier
}

func (t mortalTx) Commit() error { return errors.Join(t.Tx.Commit(), errCrashed) }

// A process dies between the commit of a post and the write to its author's feeds. The client
// repeats the call, and another process answers it. The author's next reads show the post before
// any worker has run its job.
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

// Reusing a key with another text is an error: otherwise the client would believe that its second
// post exists.
func TestIdempotencyKeyOfAnotherText(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann := w.User("ann")
		first, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: " once\r\nmore ", IdempotencyKey: "key"})
		require.NoError(t, err)
		_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "twice", IdempotencyKey: "key"})
		require.Equal(t, refusal.Conflict, refusal.CodeOf(err), "%v", err)
		_, err = w.Feed.SetVisibility(w.Ctx, ann, first.ID, schema.Private)
		require.NoError(t, err)
		again, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "once\nmore", IdempotencyKey: "key"})
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, 1, s.DB.Post.Query().CountX(w.Ctx))
	})
}

// A call that is repeated after the post was edited, for example on another device, returns the
// post as it is now, also if its original content is no longer kept.
func TestIdempotencyKeyOfAnEditedPost(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann := w.User("ann")
		d := feed.Draft{Text: "first", Data: new(`{"n":1}`), IdempotencyKey: "key"}
		first, err := w.Feed.CreatePost(w.Ctx, ann, d)
		require.NoError(t, err)
		edit := func(e feed.Edit) {
			t.Helper()
			_, err := w.Feed.UpdatePost(w.Ctx, ann, first.ID, e)
			require.NoError(t, err)
			again, err := w.Feed.CreatePost(w.Ctx, ann, d)
			require.NoError(t, err)
			require.Equal(t, first.ID, again.ID)
			if e.Text != nil {
				require.Equal(t, *e.Text, again.Text)
			}
		}
		edit(feed.Edit{Data: new("{}")})
		edit(feed.Edit{Text: new("second")})
		for _, other := range []string{"second", "third"} {
			_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: other, IdempotencyKey: "key"})
			require.Equal(t, refusal.Conflict, refusal.CodeOf(err), "%v", err)
		}
		for i := range feed.MaxVersions {
			edit(feed.Edit{Text: new(fmt.Sprint(i))})
		}
		require.Equal(t, 1, s.DB.Post.Query().CountX(w.Ctx))
	})
}

// A post is counted once, in the counter of its visibility, and the newest post is recorded in
// any order of the commits.
func TestNewPostsAreCounted(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{LargeAudience: 2})
		ann := w.User("ann")
		require.NoError(t, s.DB.User.UpdateOneID(ann.ID).SetDefaultVisibility(schema.Mutuals).Exec(w.Ctx))
		var last int64
		for _, v := range []schema.Visibility{schema.Public, schema.Followers, schema.Followers, schema.Mutuals, schema.Private} {
			last = w.Post(ann, v)
		}
		p, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "by default"})
		require.NoError(t, err)
		stored, err := s.DB.Post.Get(w.Ctx, p.ID)
		require.NoError(t, err)
		require.Equal(t, schema.Mutuals, stored.Visibility)
		require.Equal(t, []any{p.ID, p.AuthorID, p.Text, p.Visibility, p.LikeCount}, []any{stored.ID, stored.AuthorID, stored.Text, stored.Visibility, stored.LikeCount})
		require.Greater(t, p.ID, last)
		u, err := s.DB.User.Get(w.Ctx, ann.ID)
		require.NoError(t, err)
		require.Equal(t, []int{6, 1, 2, 2}, []int{u.PostCount, u.PublicPostCount, u.FollowersPostCount, u.MutualsPostCount})
		require.Equal(t, p.ID, u.LastPostID)

		require.NoError(t, s.DB.User.UpdateOneID(ann.ID).SetLastPostID(p.ID<<1).SetFollowerCount(2).Exec(w.Ctx))
		_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "to many"})
		require.NoError(t, err)
		u, err = s.DB.User.Get(w.Ctx, ann.ID)
		require.NoError(t, err)
		require.Equal(t, p.ID<<1, u.LastPostID)
		jobs, err := s.DB.Job.Query().Order(ent.Asc(job.FieldID)).All(w.Ctx)
		require.NoError(t, err)
		require.Len(t, jobs, 7)
		require.Equal(t, []string{"small", "large"}, []string{jobs[5].Pool, jobs[6].Pool})

		_, err = w.Feed.CreatePost(w.Ctx, session.Viewer{ID: 1}, feed.Draft{Text: "nobody's"})
		require.Error(t, err)
		require.Equal(t, 7, s.DB.Job.Query().CountX(w.Ctx))
	})
}

// If another constraint than the idempotency key's is violated, CreatePost returns an error and
// not a nil post.
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
			require.True(t, sqlgraph.IsUniqueConstraintError(err), "%v", err)
		}
	})
}
