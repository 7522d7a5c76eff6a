package feed_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// After an edit, every read returns the new content. Only the author can read the earlier
// versions: each once, at most as many as are kept, and deleted with the post.
func TestUpdatePost(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		w.Work()
		ann, bob := w.User("ann"), w.User("bob")
		w.Befriend(ann, bob)
		w.AwaitInbox(bob)
		post, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "first", Data: new(`{"n":1}`)})
		require.NoError(t, err)
		require.Nil(t, post.Edited())
		edit := func(v session.Viewer, e feed.Edit) (*ent.Post, error) { return w.Feed.UpdatePost(w.Ctx, v, post.ID, e) }
		said := func(v session.Viewer) (texts []string) {
			for p, size := (paging.Page{}), 20; ; {
				p.First = &size
				page, err := w.Feed.Versions(w.Ctx, v, post, p)
				require.NoError(t, err)
				if page == nil {
					return nil
				}
				for _, e := range page.Edges {
					texts = append(texts, e.Node.Text+" "+e.Node.Data)
				}
				if !page.PageInfo().HasNextPage {
					return texts
				}
				p.After = page.PageInfo().EndCursor
			}
		}
		require.Empty(t, said(ann))
		once, err := edit(ann, feed.Edit{Text: new(" second\r\n")})
		require.NoError(t, err)
		again, err := edit(ann, feed.Edit{Text: new("second"), Data: new(`{"n": 1.0}`)})
		require.NoError(t, err)
		require.Equal(t, once.EditedAt, again.EditedAt, "it is so already")
		later, err := edit(ann, feed.Edit{Data: new("{}")})
		require.NoError(t, err)
		require.Greater(t, later.EditedAt, once.EditedAt)
		require.Equal(t, []string{`second {"n":1}`, `first {"n":1}`}, said(ann))
		require.Nil(t, said(bob))
		require.Nil(t, said(session.Viewer{}))
		seen, err := w.Feed.Post(w.Ctx, bob, post.ID)
		require.NoError(t, err)
		require.Equal(t, []any{"second", later.EditedAt}, []any{seen.Text, seen.EditedAt})

		_, _, err = w.Feed.MuteWord(w.Ctx, bob, "cat")
		require.NoError(t, err)
		w.Drain()
		require.Equal(t, []int64{post.ID}, w.Timeline(bob, 10))
		_, err = edit(ann, feed.Edit{Text: new("my cat")})
		require.NoError(t, err)
		require.Empty(t, w.Timeline(bob, 10), "the words are looked for in the new text")
		_, err = edit(ann, feed.Edit{Text: new("my dog")})
		require.NoError(t, err)
		require.Equal(t, []int64{post.ID}, w.Timeline(bob, 10))

		for i := range feed.MaxVersions {
			_, err = edit(ann, feed.Edit{Text: new(fmt.Sprint(i))})
			require.NoError(t, err)
		}
		kept := said(ann)
		require.Len(t, kept, feed.MaxVersions)
		require.Equal(t, "my dog {}", kept[feed.MaxVersions-1])

		refused := func(v session.Viewer, e feed.Edit, reason refusal.Reason) {
			t.Helper()
			_, err := edit(v, e)
			var r *refusal.Error
			require.ErrorAs(t, err, &r)
			require.Equal(t, reason.Name, r.Reason.Name)
		}
		refused(session.Viewer{}, feed.Edit{Text: new("x")}, refusal.SignIn)
		refused(bob, feed.Edit{Text: new("x")}, refusal.NotTheAuthor)
		refused(ann, feed.Edit{Text: new(" ")}, refusal.Empty)
		refused(ann, feed.Edit{Data: new("[]")}, refusal.NotAnObject)
		_, err = w.Feed.HidePost(w.Ctx, post.ID, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(t, err)
		refused(ann, feed.Edit{Text: new("x")}, refusal.HiddenPost)
		refused(bob, feed.Edit{Text: new("x")}, refusal.NoSuchPost)
		_, err = w.Feed.HidePost(w.Ctx, post.ID, false, func(*ent.Tx, int64) error { return nil })
		require.NoError(t, err)
		_, err = w.Feed.SetVisibility(w.Ctx, ann, post.ID, schema.Private)
		require.NoError(t, err)
		refused(bob, feed.Edit{Text: new("x")}, refusal.NoSuchPost)
		require.NoError(t, w.Feed.DeletePost(w.Ctx, ann, post.ID))
		refused(ann, feed.Edit{Text: new("x")}, refusal.NoSuchPost)
		require.Zero(t, s.DB.PostVersion.Query().CountX(w.Ctx))
	})
}

// An edit that arrives late, such as a repeated call or one from a device that has not read
// again, does not undo a later edit if it names the version that it changes. Repeating an edit
// that succeeded changes nothing.
func TestLateEditUndoesNothing(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		ann := w.User("ann")
		post, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "first"})
		require.NoError(t, err)
		edit := func(text string, of time.Time) (*ent.Post, error) {
			return w.Feed.UpdatePost(w.Ctx, ann, post.ID, feed.Edit{Text: &text, IfUnchangedSince: &of})
		}
		second, err := edit("second", ids.TimeOf(post.ID))
		require.NoError(t, err)
		again, err := edit("second", ids.TimeOf(post.ID))
		require.NoError(t, err, "it is done")
		require.Equal(t, second.EditedAt, again.EditedAt)
		third, err := edit("third", *second.Edited())
		require.NoError(t, err)
		for _, of := range []time.Time{ids.TimeOf(post.ID), *second.Edited()} {
			_, err = edit("second", of)
			var r *refusal.Error
			require.ErrorAs(t, err, &r)
			require.Equal(t, []any{refusal.EditedSince.Name, refusal.Conflict, "ifUnchangedSince"}, []any{r.Reason.Name, refusal.CodeOf(err), r.Field})
		}
		now, err := w.Feed.Post(w.Ctx, ann, post.ID)
		require.NoError(t, err)
		require.Equal(t, []any{"third", third.EditedAt}, []any{now.Text, now.EditedAt})
	})
}

// Each of several concurrent edits is kept once. No version is left of a post that is deleted
// concurrently.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		w.Work()
		ann := w.User("ann")
		post, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "0"})
		require.NoError(t, err)
		var all sync.WaitGroup
		at := func(n int, do func() error) {
			all.Go(func() {
				if err := do(); err != nil && !errors.Is(err, refusal.ErrNoSuchPost) {
					t.Errorf("%d: %v", n, err)
				}
			})
		}
		edit := func(text string) error {
			_, err := w.Feed.UpdatePost(w.Ctx, ann, post.ID, feed.Edit{Text: &text})
			return err
		}
		want := []string{"0"}
		for n := range 8 {
			want = append(want, fmt.Sprint(n+1))
			at(n, func() error { return edit(fmt.Sprint(n + 1)) })
		}
		all.Wait()
		now, err := w.Feed.Post(w.Ctx, ann, post.ID)
		require.NoError(t, err)
		versions, err := w.Feed.Versions(w.Ctx, ann, post, paging.Page{})
		require.NoError(t, err)
		texts, since := []string{now.Text}, now.EditedAt
		for _, e := range versions.Edges {
			require.Less(t, e.Node.WrittenAt, since)
			texts, since = append(texts, e.Node.Text), e.Node.WrittenAt
		}
		slices.Sort(texts)
		require.Equal(t, want, texts)

		for n := range 8 {
			at(n, func() error { return edit(fmt.Sprint(-n)) })
		}
		at(-1, func() error { return w.Feed.DeletePost(w.Ctx, ann, post.ID) })
		all.Wait()
		w.Drain()
		require.Zero(t, s.DB.Post.Query().CountX(w.Ctx))
		require.Zero(t, s.DB.PostVersion.Query().CountX(w.Ctx))
	})
}
