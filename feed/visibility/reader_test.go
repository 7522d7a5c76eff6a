package visibility_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// maySee is a second implementation of the rule.
func maySee(on visibility.Surface, r visibility.Relation, v schema.Visibility) bool {
	switch {
	case r&(visibility.Blocking|visibility.BlockedBy) != 0, on == visibility.Home && (r.Has(visibility.Muting) || !r.Has(visibility.Following)), on == visibility.Tagged && r.Has(visibility.Muting):
		return false
	case v == schema.Followers:
		return r.Has(visibility.Following)
	case v == schema.Mutuals:
		return r.Has(visibility.Mutual)
	}
	return v == schema.Public
}

// The viewer is shown exactly what the rule allows, for every relation between viewer and author,
// for every way to read posts, and whether or not the viewer has relations with others. Fields that
// are read with the posts are right or unknown.
func TestReadsObeyTheRule(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		stranger := w.User("stranger")
		for _, entangled := range []bool{false, true} {
			for r := range everyRelation + 1 {
				name := fmt.Sprintf("%d_%t", r, entangled)
				viewer, author := w.User("v"+name), w.User("a"+name)
				relate(w, viewer, author, r)
				if entangled {
					relate(w, viewer, stranger, everyRelation)
				}
				check(w, viewer, author, r)
			}
		}
	})
}

const everyRelation = visibility.Mutual | visibility.Blocking | visibility.BlockedBy | visibility.Muting

// relate inserts the rows of a relation.
func relate(w *feedtest.World, viewer, other session.Viewer, r visibility.Relation) {
	db, now := w.Stores.DB, time.Now().UTC()
	follow := func(from, to int64) *ent.FollowCreate {
		return db.Follow.Create().SetFollowerID(from).SetFolloweeID(to).SetCreatedAt(now)
	}
	block := func(from, to int64) *ent.BlockCreate {
		return db.Block.Create().SetBlockerID(from).SetBlockedID(to).SetCreatedAt(now)
	}
	for flag, write := range map[visibility.Relation]func(context.Context) error{
		visibility.Following:  follow(viewer.ID, other.ID).Exec,
		visibility.FollowedBy: follow(other.ID, viewer.ID).Exec,
		visibility.Blocking:   block(viewer.ID, other.ID).Exec,
		visibility.BlockedBy:  block(other.ID, viewer.ID).Exec,
		visibility.Muting:     db.Mute.Create().SetMuterID(viewer.ID).SetMutedID(other.ID).SetCreatedAt(now).Exec,
	} {
		if r.Has(flag) {
			require.NoError(w, write(w.Ctx))
		}
	}
}

// check reads the author's posts in every way.
func check(w *feedtest.World, viewer, author session.Viewer, r visibility.Relation) {
	var ids []int64
	seen := map[visibility.Surface][]int64{}
	for _, v := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private} {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		require.NoError(w, w.Stores.DB.Post.Create().SetID(id).SetAuthorID(author.ID).SetText(string(v)).SetVisibility(v).Exec(w.Ctx))
		require.NoError(w, w.Stores.DB.PostTag.Create().SetPostID(id).SetTag(fmt.Sprint(author.ID)).Exec(w.Ctx))
		ids = append(ids, id)
		for _, on := range []visibility.Surface{visibility.Direct, visibility.Home, visibility.Tagged} {
			if maySee(on, r, v) {
				seen[on] = append(seen[on], id)
			}
		}
	}
	checkPulled(w, viewer, author, ids[3], seen[visibility.Home])
	require.NoError(w, w.Stores.DB.Like.Create().SetUserID(viewer.ID).SetPostID(ids[0]).Exec(w.Ctx))
	for _, on := range []visibility.Surface{visibility.Direct, visibility.Home, visibility.Tagged} {
		shown := func(list []*ent.Post, err error) (found []int64) {
			require.NoError(w, err)
			for _, p := range list {
				if p != nil {
					require.Equal(w, author.ID, p.AuthorID)
					require.Equal(w, string(p.Visibility), p.Text)
					found = append(found, p.ID)
				}
			}
			return found
		}
		require.Equal(w, seen[on], shown(w.Visibility.Posts(w.Ctx, on, viewer.ID, ids, 0)), "%+v", r)
		all := timeline.Range{Limit: 10, Ascending: true}
		require.Equal(w, seen[on], shown(visibility.Fill(w.Ctx, on, viewer.ID, all, w.Visibility.AllBy(author.ID))), "%+v", r)
		tagged, stopped := w.Visibility.Tagged(fmt.Sprint(author.ID))
		require.Equal(w, seen[on], shown(visibility.Fill(w.Ctx, on, viewer.ID, all, tagged)), "%+v", r)
		require.Zero(w, *stopped)
		require.Equal(w, seen[on], shown(visibility.Fill(w.Ctx, on, viewer.ID, all, w.Visibility.By(on, author.ID))), "%+v", r)
		for with := range visibility.All + 1 {
			posts, err := visibility.Fill(w.Ctx, on, viewer.ID, all, func(ctx context.Context, viewer int64, _ timeline.Range) (visibility.Batch, error) {
				b, gone, err := w.Visibility.ByIDs(ctx, viewer, append(slices.Clone(ids), 1), with)
				require.Equal(w, []int64{1}, gone)
				return b, err
			})
			require.Equal(w, seen[on], shown(posts, err), "%+v", r)
			for _, p := range posts {
				liked, known := visibility.Liked(p)
				require.Equal(w, with&visibility.Likes != 0, known)
				require.Equal(w, known && p.ID == ids[0], liked)
				u := p.Edges.Author
				require.Equal(w, with&visibility.Author != 0, u != nil)
				if u != nil {
					require.Equal(w, author.ID, u.ID)
					require.NotEmpty(w, u.Handle)
					require.Equal(w, with&visibility.Profile != 0, !u.CreatedAt.IsZero())
					require.Empty(w, u.PasswordHash)
				}
			}
		}
	}
}

// checkPulled reads the viewer's home timeline from SQL, for readers and for an inbox, from both
// ends. A post that was read for an inbox causes an error on every other surface.
func checkPulled(w *feedtest.World, viewer, author session.Viewer, newest int64, seen []int64) {
	require.NoError(w, w.Stores.DB.User.UpdateOneID(author.ID).SetLastPostID(newest).Exec(w.Ctx))
	for _, ascending := range []bool{false, true} {
		all, want := timeline.Range{Limit: 10, Ascending: ascending}, slices.Clone(seen)
		if !ascending {
			slices.Reverse(want)
		}
		posts, err := visibility.Fill(w.Ctx, visibility.Home, viewer.ID, all, w.Visibility.Pulled(viewer.ID))
		require.NoError(w, err)
		require.Equal(w, want, idsOf(posts))
		for _, p := range posts {
			require.Equal(w, string(p.Visibility), p.Text)
			_, known := visibility.Liked(p)
			require.True(w, known)
		}
		inbox := w.Visibility.PulledIDs(viewer.ID)
		posts, err = visibility.Fill(w.Ctx, visibility.Inbox, viewer.ID, all, inbox)
		require.NoError(w, err)
		require.Equal(w, want, idsOf(posts))
		for _, on := range []visibility.Surface{visibility.Direct, visibility.Home, visibility.Tagged} {
			posts, err = visibility.Fill(w.Ctx, on, viewer.ID, all, inbox)
			require.Empty(w, posts, "the viewer may mute a word of it")
			require.True(w, len(seen) == 0 || err != nil)
		}
	}
}

func idsOf(posts []*ent.Post) (ids []int64) {
	for _, p := range posts {
		ids = append(ids, p.ID)
	}
	return ids
}

// A page costs one statement, whatever fields it reads with its posts.
func TestPostsByKeyAreOneStatement(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		ids := w.History(ann, 3)
		for with := range visibility.Fields(8) {
			require.Eventually(w, func() bool { // background work runs statements, too
				asked := storagetest.CountQueries(w.Stores)
				_, _, err := w.Visibility.ByIDs(w.Ctx, bob.ID, ids, with)
				require.NoError(w, err)
				return asked() == 1
			}, time.Minute, time.Millisecond)
		}
		posts, err := w.Visibility.Posts(w.Ctx, visibility.Direct, 0, ids, 0)
		require.NoError(w, err)
		require.Len(w, posts, 3)
		_, known := visibility.Liked(posts[0])
		require.False(w, known, "of an anonymous viewer")
	})
}
