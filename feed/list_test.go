package feed_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage/storagetest"
)

// walk reads a list page by page, two entries at a time, downwards or upwards. Every page except
// the last is full.
func walk[T any](w *feedtest.World, upwards bool, id func(*T) int64, read func(p paging.Page) (*paging.Connection[T], error)) []int64 {
	w.Helper()
	two, list := 2, []int64{}
	for p := (paging.Page{First: &two}); ; {
		if upwards {
			p.First, p.Last = nil, &two
		}
		page, err := read(p)
		require.NoError(w, err)
		ids := []int64{}
		for _, node := range page.Nodes() {
			ids = append(ids, id(node))
		}
		more := page.HasNextPage
		if upwards {
			more, list = page.HasPreviousPage, append(ids, list...)
			p.Before = page.PageInfo().StartCursor
		} else {
			list = append(list, ids...)
			p.After = page.PageInfo().EndCursor
		}
		if !more {
			return list
		}
		require.Len(w, ids, two)
	}
}

// Users can list their own relations, newest first, and nobody else can. Hidden users are left
// out.
func TestOwnLists(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, others := w.User("ann"), w.Users(7)
		type change = func(v session.Viewer, other int64) (*ent.User, error)
		type list = func(v session.Viewer, owner int64, p paging.Page) (*paging.Connection[ent.User], error)
		for name, of := range map[string]struct {
			do, undo change
			list     list
		}{
			"blocked": {
				func(v session.Viewer, other int64) (*ent.User, error) { return w.Feed.Block(w.Ctx, v, other) },
				func(v session.Viewer, other int64) (*ent.User, error) { return w.Feed.Unblock(w.Ctx, v, other) },
				func(v session.Viewer, owner int64, p paging.Page) (*paging.Connection[ent.User], error) {
					return w.Feed.Blocked(w.Ctx, v, owner, p)
				},
			},
			"muted": {
				func(v session.Viewer, other int64) (*ent.User, error) { return w.Feed.Mute(w.Ctx, v, other) },
				func(v session.Viewer, other int64) (*ent.User, error) { return w.Feed.Unmute(w.Ctx, v, other) },
				func(v session.Viewer, owner int64, p paging.Page) (*paging.Connection[ent.User], error) {
					return w.Feed.Muted(w.Ctx, v, owner, p)
				},
			},
			"requests": {
				func(v session.Viewer, other int64) (*ent.User, error) {
					yes := true
					_, err := w.Accounts.UpdateProfile(w.Ctx, session.Viewer{ID: other}, account.Profile{ApprovesFollowers: &yes})
					require.NoError(w, err)
					return w.Feed.Follow(w.Ctx, v, other)
				},
				func(v session.Viewer, other int64) (*ent.User, error) { return w.Feed.Unfollow(w.Ctx, v, other) },
				func(v session.Viewer, owner int64, p paging.Page) (*paging.Connection[ent.User], error) {
					return w.Feed.SentRequests(w.Ctx, v, owner, p)
				},
			},
		} {
			read := func() []int64 {
				return walk(w, false, func(u *ent.User) int64 { return u.ID }, func(p paging.Page) (*paging.Connection[ent.User], error) {
					return of.list(ann, ann.ID, p)
				})
			}
			want := []int64{}
			for _, other := range others {
				_, err := of.do(ann, other.ID)
				require.NoError(w, err, name)
				_, err = of.do(other, ann.ID) // does not appear in ann's list
				require.NoError(w, err, name)
				want = append([]int64{other.ID}, want...)
			}
			require.Equal(w, want, read(), name)

			for _, nobody := range []session.Viewer{others[0], {}} {
				page, err := of.list(nobody, ann.ID, paging.Page{})
				require.NoError(w, err, name)
				require.Nil(w, page, name)
			}
			none := 0
			_, err := of.list(ann, ann.ID, paging.Page{First: &none})
			require.Equal(w, refusal.BadInput, refusal.CodeOf(err), name)

			_, err = of.undo(ann, want[1])
			require.NoError(w, err, name)
			_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, want[3], "", account.Suspension{})
			require.NoError(w, err, name)
			require.Equal(w, []int64{want[0], want[2], want[4], want[5], want[6]}, read(), name)
			_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, want[3], "")
			require.NoError(w, err, name)
			for _, other := range others {
				_, err := of.undo(ann, other.ID)
				require.NoError(w, err, name)
				_, err = of.undo(other, ann.ID)
				require.NoError(w, err, name)
			}
			require.Empty(w, read(), name)
			yes := false
			for _, u := range append(others, ann) {
				_, err := w.Accounts.UpdateProfile(w.Ctx, u, account.Profile{ApprovesFollowers: &yes})
				require.NoError(w, err, name)
			}
		}
	})
}

// The posts that a user likes are listed in the order of the likes. Posts that the user may not
// see at that moment are left out.
func TestLikedPosts(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob, cat, dan := w.User("ann"), w.User("bob"), w.User("cat"), w.User("dan")
		for _, author := range []session.Viewer{bob, cat, dan} {
			w.Befriend(ann, author)
		}
		like := func(id int64) int64 {
			w.Helper()
			_, err := w.Feed.LikePost(w.Ctx, ann, id)
			require.NoError(w, err)
			return id
		}
		read := func(upwards bool) []int64 {
			return walk(w, upwards, func(p *ent.Post) int64 { return p.ID }, func(p paging.Page) (*paging.Connection[ent.Post], error) {
				return w.Feed.LikedPosts(w.Ctx, ann, ann.ID, p)
			})
		}
		require.Empty(w, read(false))
		ofBob, ofCat := w.Post(bob, schema.Followers), w.Post(cat, schema.Public)
		mutual, narrowed, hidden, deleted := w.Post(bob, schema.Mutuals), w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Public)
		own, ofDan := w.Post(ann, schema.Private), w.Post(dan, schema.Public)
		var run []int64 // posts that will be hidden
		for range 9 {
			run = append(run, like(w.Post(dan, schema.Followers)))
		}
		for _, id := range []int64{ofDan, deleted, own, hidden, ofCat, mutual, narrowed, ofBob} { // not in the order of the posts
			like(id)
		}
		like(ofBob) // again
		_, err := w.Feed.LikePost(w.Ctx, bob, w.Post(cat, schema.Public))
		require.NoError(w, err)

		all := []int64{ofBob, narrowed, mutual, ofCat, hidden, own, deleted, ofDan}
		require.Equal(w, append(all[:8:8], run[8], run[7], run[6], run[5], run[4], run[3], run[2], run[1], run[0]), read(false))
		for _, nobody := range []session.Viewer{bob, {}} {
			page, err := w.Feed.LikedPosts(w.Ctx, nobody, ann.ID, paging.Page{})
			require.NoError(w, err)
			require.Nil(w, page)
		}
		none := 0
		_, err = w.Feed.LikedPosts(w.Ctx, ann, ann.ID, paging.Page{First: &none})
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err))

		// Only dan's public post is left, after or before a run of hidden ones.
		_, err = w.Feed.Unfollow(w.Ctx, ann, dan.ID)
		require.NoError(w, err)
		require.Equal(w, all, read(false))
		require.Equal(w, all, read(true))
		_, err = w.Feed.SetVisibility(w.Ctx, bob, narrowed, schema.Private)
		require.NoError(w, err)
		_, err = w.Feed.HidePost(w.Ctx, hidden, true, func(*ent.Tx, int64) error { return nil })
		require.NoError(w, err)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, deleted))
		_, err = w.Feed.UnlikePost(w.Ctx, ann, ofBob)
		require.NoError(w, err)
		_, err = w.Feed.Mute(w.Ctx, ann, cat.ID)
		require.NoError(w, err, "a muted author's post is in the profile still")
		require.Equal(w, []int64{mutual, ofCat, own, ofDan}, read(false))
		_, err = w.Feed.Unfollow(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		_, err = w.Feed.Block(w.Ctx, cat, ann.ID)
		require.NoError(w, err)
		_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, dan.ID, "", account.Suspension{})
		require.NoError(w, err)
		require.Equal(w, []int64{own}, read(false))
		_, err = w.Feed.Unblock(w.Ctx, cat, ann.ID)
		require.NoError(w, err)
		like(ofBob)
		require.Equal(w, []int64{ofBob, ofCat, own}, read(false))
		require.Equal(w, []int64{ofBob, ofCat, own}, read(true))
	})
}

// A page of likes examines a bounded number of posts that became invisible. A page with too few
// entries says where the list continues.
func TestLikedPostsLooksAtFewAtATime(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		like := func(id int64) int64 {
			w.Helper()
			w.Stores.DB.Like.Create().SetUserID(bob.ID).SetPostID(id).ExecX(w.Ctx)
			return id
		}
		deep := like(w.Post(ann, schema.Public))
		for n := 2*visibility.MostLooked + 100; n > 0; n -= 100 {
			posts, likes := make([]*ent.PostCreate, 100), make([]*ent.LikeCreate, 100)
			for i := range posts {
				id, err := w.IDs.Next()
				require.NoError(w, err)
				posts[i] = w.Stores.DB.Post.Create().SetID(id).SetAuthorID(ann.ID).SetText("once public").SetVisibility(schema.Private)
				likes[i] = w.Stores.DB.Like.Create().SetUserID(bob.ID).SetPostID(id)
			}
			w.Stores.DB.Post.CreateBulk(posts...).ExecX(w.Ctx)
			w.Stores.DB.Like.CreateBulk(likes...).ExecX(w.Ctx)
		}
		top := like(w.Post(ann, schema.Public))
		pages, p := [][]int64{}, paging.Page{}
		for {
			asked := storagetest.CountQueries(w.Stores)
			page, err := w.Feed.LikedPosts(w.Ctx, bob, bob.ID, p)
			require.NoError(w, err)
			require.LessOrEqual(w, asked(), 16)
			pages, p.After = append(pages, feedtest.PostIDs(page)), page.PageInfo().EndCursor
			if !page.PageInfo().HasNextPage {
				break
			}
			require.NotNil(w, p.After)
		}
		require.Equal(w, [][]int64{{top}, {}, {deep}}, pages)
	})
}

// A page of followers examines a bounded number of hidden users, and says where the list
// continues.
func TestFollowersLooksAtFewAtATime(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, deep := w.User("ann"), w.User("deep")
		w.Follow(deep, ann)
		for n := 2*visibility.MostLooked + 100; n > 0; n -= 100 {
			users, hidden, follows := make([]*ent.UserCreate, 100), make([]*ent.HiddenUserCreate, 100), make([]*ent.FollowCreate, 100)
			for i := range users {
				id, err := w.IDs.Next()
				require.NoError(w, err)
				users[i] = w.Stores.DB.User.Create().SetID(id).SetHandle(fmt.Sprint("h", id)).SetName("Hidden").SetPasswordHash("-").SetHidden(true)
				hidden[i] = w.Stores.DB.HiddenUser.Create().SetID(id).SetState(hiddenuser.StateSUSPENDED).SetDueAt(w.Now().AddDate(1000, 0, 0))
				follows[i] = w.Stores.DB.Follow.Create().SetFollowerID(id).SetFolloweeID(ann.ID)
			}
			w.Stores.DB.User.CreateBulk(users...).ExecX(w.Ctx)
			w.Stores.DB.HiddenUser.CreateBulk(hidden...).ExecX(w.Ctx)
			w.Stores.DB.Follow.CreateBulk(follows...).ExecX(w.Ctx)
		}
		top := w.User("top")
		w.Follow(top, ann)
		pages, p := [][]int64{}, paging.Page{}
		for {
			asked := storagetest.CountQueries(w.Stores)
			page, err := w.Feed.Followers(w.Ctx, ann.ID, p)
			require.NoError(w, err)
			require.LessOrEqual(w, asked(), 16)
			ids := []int64{}
			for _, u := range page.Nodes() {
				ids = append(ids, u.ID)
			}
			pages, p.After = append(pages, ids), page.PageInfo().EndCursor
			if !page.PageInfo().HasNextPage {
				break
			}
			require.NotNil(w, p.After)
		}
		require.Equal(w, [][]int64{{top.ID}, {}, {deep.ID}}, pages)
	})
}
