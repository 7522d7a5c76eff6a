package feed_test

import (
	"encoding/base64"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage/storagetest"
)

// tagged returns the posts that the list of a tag shows to a viewer, read with a given page size.
func tagged(w *feedtest.World, v session.Viewer, tag string, size int) []int64 {
	w.Helper()
	all := []int64{}
	for p := (paging.Page{First: &size}); ; {
		page, err := w.Feed.TaggedPosts(w.Ctx, v, tag, p)
		require.NoError(w, err)
		all = append(all, feedtest.PostIDs(page)...)
		if !page.PageInfo().HasNextPage {
			return all
		}
		p.After = page.PageInfo().EndCursor
	}
}

func say(w *feedtest.World, author session.Viewer, text string, v schema.Visibility) int64 {
	w.Helper()
	p, err := w.Feed.CreatePost(w.Ctx, author, feed.Draft{Text: text, Visibility: &v})
	require.NoError(w, err)
	return p.ID
}

// The list of a tag contains the posts that the viewer may see, newest first, of any author. It
// leaves out muted users and posts with muted words.
func TestTaggedPosts(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cat := w.User("ann"), w.User("bob"), w.User("cat")
		w.Befriend(ann, bob)
		w.Follow(cat, bob)
		posts := map[schema.Visibility]int64{}
		for _, v := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private} {
			posts[v] = say(w, bob, "Low #Tide, #潮水 #tide", v)
		}
		say(w, bob, "tide, and #tides", schema.Public)
		loud := say(w, cat, "a LOUD #tide", schema.Public)
		public, followers, mutuals, private := posts[schema.Public], posts[schema.Followers], posts[schema.Mutuals], posts[schema.Private]
		see := func(v session.Viewer, want ...int64) {
			w.Helper()
			for _, size := range []int{1, 2, 20} {
				require.Equal(w, append([]int64{}, want...), tagged(w, v, "TIDE", size))
			}
		}
		see(bob, loud, private, mutuals, followers, public)
		see(ann, loud, mutuals, followers, public)
		see(cat, loud, followers, public)
		see(session.Viewer{}, loud, public)
		require.Equal(w, []int64{mutuals, followers, public}, tagged(w, ann, "#潮水", 2))
		require.Empty(w, tagged(w, ann, "ebb", 20))

		do := func(_ any, err error) { w.Helper(); require.NoError(w, err) }
		do(w.Feed.Mute(w.Ctx, ann, cat.ID))
		see(ann, mutuals, followers, public)
		do(w.Feed.Unmute(w.Ctx, ann, cat.ID))
		_, _, err := w.Feed.MuteWord(w.Ctx, ann, "loud")
		require.NoError(w, err)
		see(ann, mutuals, followers, public)
		see(cat, loud, followers, public)
		do(w.Feed.Block(w.Ctx, cat, ann.ID))
		do(w.Feed.Block(w.Ctx, ann, bob.ID))
		see(ann)
		do(w.Feed.Unblock(w.Ctx, ann, bob.ID))
		see(ann, public)

		do(w.Feed.SetVisibility(w.Ctx, bob, public, schema.Private))
		see(session.Viewer{}, loud)
		do(w.Feed.SetVisibility(w.Ctx, bob, public, schema.Public))
		do(w.Feed.HidePost(w.Ctx, loud, true, func(*ent.Tx, int64) error { return nil }))
		see(session.Viewer{}, public)
		do(w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "", account.Suspension{}))
		see(session.Viewer{})
		see(cat, loud)
	})
}

// An edit adds a post to the lists of its new tags and removes it from the others. Deleting its
// row removes it from all.
func TestTagsFollowTheText(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		id := say(w, ann, "#tide #ebb", schema.Public)
		edit := func(text string, tags ...string) {
			w.Helper()
			p, err := w.Feed.UpdatePost(w.Ctx, ann, id, feed.Edit{Text: &text})
			require.NoError(w, err)
			require.Equal(w, text, p.Text)
			for _, tag := range []string{"tide", "ebb", "flow"} {
				found := []int64{}
				for _, has := range tags {
					if has == tag {
						found = append(found, id)
					}
				}
				require.Equal(w, found, tagged(w, session.Viewer{}, tag, 20), "%s: %s", text, tag)
			}
		}
		edit("#ebb #flow", "ebb", "flow")
		edit("none")
		edit("#TIDE", "tide")
		// Rows left by a version without tags do no harm.
		w.Stores.DB.Post.UpdateOneID(id).SetText("by another version").ExecX(w.Ctx)
		edit("#tide again", "tide")

		rows := func() int { return w.Stores.DB.PostTag.Query().CountX(w.Ctx) }
		require.Equal(w, 1, rows())
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, id))
		require.Zero(w, rows())
		liked := say(w, ann, "#tide", schema.Public)
		w.Stores.DB.Post.UpdateOneID(liked).SetLikeCount(1_000_000).ExecX(w.Ctx)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, liked))
		require.Zero(w, rows())
	})
}

// A tag full of posts that the viewer may not see costs a bounded read: a page ends early, and
// the list continues.
func TestTagFullOfHiddenPosts(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		deep := say(w, ann, "#tide", schema.Public)
		for n := 2*visibility.MostLooked + 100; n > 0; n -= 100 {
			posts, tags := make([]*ent.PostCreate, 100), make([]*ent.PostTagCreate, 100)
			for i := range posts {
				id, err := w.IDs.Next()
				require.NoError(w, err)
				posts[i] = w.Stores.DB.Post.Create().SetID(id).SetAuthorID(ann.ID).SetText("#tide").SetVisibility(schema.Private)
				tags[i] = w.Stores.DB.PostTag.Create().SetPostID(id).SetTag("tide")
			}
			w.Stores.DB.Post.CreateBulk(posts...).ExecX(w.Ctx)
			w.Stores.DB.PostTag.CreateBulk(tags...).ExecX(w.Ctx)
		}
		top := say(w, ann, "#tide", schema.Public)
		pages, p := [][]int64{}, paging.Page{}
		for {
			asked := storagetest.CountQueries(w.Stores)
			page, err := w.Feed.TaggedPosts(w.Ctx, bob, "tide", p)
			require.NoError(w, err)
			require.LessOrEqual(w, asked(), 20)
			pages, p.After = append(pages, feedtest.PostIDs(page)), page.PageInfo().EndCursor
			if !page.PageInfo().HasNextPage {
				break
			}
			require.NotNil(w, p.After)
			raw, err := base64.RawURLEncoding.DecodeString(*p.After)
			require.NoError(w, err)
			id := int64(binary.BigEndian.Uint64(raw[10:])) // the encoding of paging.Cursor
			require.False(w, w.Stores.DB.Post.Query().Where(post.ID(id), post.VisibilityEQ(schema.Private)).ExistX(w.Ctx),
				"a cursor names a post that the viewer may not see")
		}
		require.Equal(w, [][]int64{{top}, {}, {deep}}, pages)
	})
}

func TestTaggedPostsRefusals(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		say(w, ann, "#tide #ebb", schema.Public)
		page, err := w.Feed.TaggedPosts(w.Ctx, ann, "tide", paging.Page{})
		require.NoError(w, err)
		zero := 0
		for tag, p := range map[string]paging.Page{"": {}, "two words": {}, "42": {}, "tide": {First: &zero}, "ebb": {After: &page.Edges[0].Cursor}} {
			_, err := w.Feed.TaggedPosts(w.Ctx, ann, tag, p)
			require.Equal(w, refusal.BadInput, refusal.CodeOf(err), tag)
		}
	})
}
