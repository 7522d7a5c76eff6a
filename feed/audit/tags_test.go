package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
)

// A repair, in pages, makes posts that a version without tags wrote and edited findable by their
// tags. A second repair changes nothing.
func TestTagsOfEarlierPosts(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		right, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "#tide"})
		require.NoError(w, err)
		edited, err := w.Feed.CreatePost(w.Ctx, ann, feed.Draft{Text: "#tide #ebb"})
		require.NoError(w, err)
		w.Stores.DB.Post.UpdateOneID(edited.ID).SetText("#ebb #flow").ExecX(w.Ctx)
		before := w.History(ann, 9)
		w.Stores.DB.Post.Update().SetText("#Tide, then").ExecX(w.Ctx)
		w.Stores.DB.Post.UpdateOneID(right.ID).SetText("#tide").ExecX(w.Ctx)
		w.Stores.DB.Post.UpdateOneID(edited.ID).SetText("#ebb #flow").ExecX(w.Ctx)
		w.Stores.DB.Post.UpdateOneID(before[0]).SetText("none").ExecX(w.Ctx)
		hidden := before[1]
		w.Stores.DB.Post.UpdateOneID(hidden).SetVisibility(schema.Private).ExecX(w.Ctx)

		mistagged := func(repair bool) int {
			w.Helper()
			n := 0
			for after := int64(0); ; {
				page, err := audit.NewRecounter(w.Stores.DB).Posts(w.Ctx, after, 2, repair)
				require.NoError(w, err)
				if page.Rows == 0 {
					return n
				}
				n, after = n+page.Mistagged, page.Last
			}
		}
		require.Equal(w, 9, mistagged(false))
		require.Equal(w, 9, mistagged(false), "nothing changed")
		require.Equal(w, 9, mistagged(true))
		require.Zero(w, mistagged(true))
		for tag, want := range map[string][]int64{
			"tide": feedtest.NewestFirst(append(before[1:], right.ID)...), "ebb": {edited.ID}, "flow": {edited.ID}, "then": {},
		} {
			page, err := w.Feed.TaggedPosts(w.Ctx, ann, tag, paging.Page{})
			require.NoError(w, err)
			require.Equal(w, want, feedtest.PostIDs(page), tag)
		}
	})
}
