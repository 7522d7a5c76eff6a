package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// When DeletePost returns, a post with very many likes is gone except for a row that no read
// shows. A job deletes the likes.
func TestPostWithManyLikesIsGoneBeforeItsLikes(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(bob, ann)
		older := w.Post(ann, "PUBLIC")
		made, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "liked by all", IdempotencyKey: "once"})
		require.NoError(w, err)
		_, err = w.Feed.UpdatePost(w.Ctx, ann, made.ID, feed.Edit{Text: new("liked by all, and edited for @bob")})
		require.NoError(w, err)
		require.Equal(w, 1, w.Stores.DB.PostMention.Query().CountX(w.Ctx))
		for _, v := range []session.Viewer{ann, bob} {
			_, err := w.Feed.LikePost(w.Ctx, v, made.ID)
			require.NoError(w, err)
		}
		w.Stores.DB.Post.UpdateOneID(made.ID).SetLikeCount(1_000_000).ExecX(w.Ctx)
		w.AwaitInbox(bob)
		w.AwaitInbox(ann)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, made.ID))
		row := w.Stores.DB.Post.GetX(w.Ctx, made.ID)
		require.Equal(w, schema.Deleted, row.Visibility)
		require.Empty(w, row.Text)
		require.Zero(w, w.Stores.DB.PostVersion.Query().CountX(w.Ctx))
		require.Zero(w, w.Stores.DB.PostMention.Query().CountX(w.Ctx))

		refused := func(code refusal.Code, err error) {
			w.Helper()
			require.Equal(w, code, refusal.CodeOf(err), "%v", err)
		}
		for _, v := range []session.Viewer{ann, bob, {}} {
			_, err := w.Feed.Post(w.Ctx, v, made.ID)
			refused(refusal.NotFound, err)
		}
		for _, v := range []session.Viewer{ann, bob} {
			require.Equal(w, []int64{older}, w.Timeline(v, 10))
			_, err := w.Feed.LikePost(w.Ctx, v, made.ID)
			refused(refusal.NotFound, err)
		}
		refused(refusal.NotFound, w.Feed.DeletePost(w.Ctx, ann, made.ID))
		_, err = w.Feed.SetVisibility(w.Ctx, ann, made.ID, "PUBLIC")
		refused(refusal.NotFound, err)
		_, err = w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "liked by all", IdempotencyKey: "once"})
		refused(refusal.Conflict, err)
		stored, err := w.Visibility.Unchecked.Post(w.Ctx, made.ID)
		require.NoError(w, err)
		require.Nil(w, stored)
		verdict, err := w.Visibility.Judge(w.Ctx, made.ID, []int64{bob.ID})
		require.NoError(w, err)
		require.Nil(w, verdict.Post)
		author := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		require.Equal(w, []int64{1, 1, older}, []int64{int64(author.PostCount), int64(author.PublicPostCount), author.LastPostID})

		w.Work()
		w.Drain()
		require.Equal(w, 1, w.Stores.DB.Post.Query().CountX(w.Ctx))
		require.Zero(w, w.Stores.DB.Like.Query().CountX(w.Ctx))
	})
}
