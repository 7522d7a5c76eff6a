package feed_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
)

// counted compares every counter with a recount.
func (w *world) counted() {
	w.t.Helper()
	users, err := w.s.DB.User.Query().All(w.ctx)
	require.NoError(w.t, err)
	for _, u := range users {
		followers, err := w.s.DB.Follow.Query().Where(follow.FolloweeID(u.ID)).Count(w.ctx)
		require.NoError(w.t, err)
		following, err := w.s.DB.Follow.Query().Where(follow.FollowerID(u.ID)).Count(w.ctx)
		require.NoError(w.t, err)
		posts, err := w.s.DB.Post.Query().Where(post.AuthorID(u.ID)).All(w.ctx)
		require.NoError(w.t, err)
		require.Equal(w.t, [3]int{followers, following, len(posts)}, [3]int{u.FollowerCount, u.FollowingCount, u.PostCount}, u.Handle)
		of := map[schema.Visibility]int{}
		for _, p := range posts {
			of[p.Visibility]++
		}
		require.Equal(w.t, [3]int{of[schema.Public], of[schema.Followers], of[schema.Mutuals]},
			[3]int{u.PublicPostCount, u.FollowersPostCount, u.MutualsPostCount}, u.Handle)
	}
	all, err := w.s.DB.Post.Query().All(w.ctx)
	require.NoError(w.t, err)
	for _, p := range all {
		likes, err := w.s.DB.Like.Query().Where(like.PostID(p.ID)).Count(w.ctx)
		require.NoError(w.t, err)
		require.Equal(w.t, likes, p.LikeCount)
	}
}

func TestConcurrentChangesKeepOneEdgeAndTrueCounters(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(4)
		id := w.post(u[0], schema.Public)
		changes := []func(me, other feed.Viewer) error{
			func(me, other feed.Viewer) error { _, err := w.feed.Follow(w.ctx, me, other.ID); return err },
			func(me, other feed.Viewer) error { _, err := w.feed.Follow(w.ctx, me, other.ID); return err },
			func(me, other feed.Viewer) error { _, err := w.feed.Unfollow(w.ctx, me, other.ID); return err },
			func(me, other feed.Viewer) error { _, err := w.feed.Block(w.ctx, me, other.ID); return err },
			func(me, other feed.Viewer) error { _, err := w.feed.Unblock(w.ctx, me, other.ID); return err },
			func(me, _ feed.Viewer) error { _, err := w.feed.LikePost(w.ctx, me, id); return err },
			func(me, _ feed.Viewer) error { _, err := w.feed.UnlikePost(w.ctx, me, id); return err },
			func(feed.Viewer, feed.Viewer) error {
				_, err := w.feed.SetVisibility(w.ctx, u[0], id, schema.Mutuals)
				return err
			},
			func(feed.Viewer, feed.Viewer) error {
				_, err := w.feed.SetVisibility(w.ctx, u[0], id, schema.Public)
				return err
			},
			func(me, _ feed.Viewer) error {
				p, err := w.feed.CreatePost(w.ctx, me, feed.Draft{Text: "x"})
				if err == nil {
					err = w.feed.DeletePost(w.ctx, me, p.ID)
				}
				return err
			},
		}
		var wg sync.WaitGroup
		for round := range 3 {
			for i, change := range changes {
				for a := range u {
					me, other := u[a], u[(a+1+round)%len(u)]
					if me == other {
						other = u[(a+1)%len(u)]
					}
					wg.Go(func() {
						if err := change(me, other); err != nil && feed.CodeOf(err) == "" {
							w.t.Errorf("change %d: %v", i, err)
						}
					})
				}
			}
		}
		wg.Wait()
		w.settle()
		w.counted()
		blocks, err := w.s.DB.Block.Query().All(w.ctx)
		require.NoError(w.t, err)
		for _, b := range blocks {
			n, err := w.s.DB.Follow.Query().Where(follow.FollowerIDIn(b.BlockerID, b.BlockedID), follow.FolloweeIDIn(b.BlockerID, b.BlockedID)).Count(w.ctx)
			require.NoError(w.t, err)
			require.Zero(w.t, n, "no follow beside a block")
		}
	})
}

func TestFollowRequests(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		shy, fan, other := w.user("shy"), w.user("fan"), w.user("other")
		yes := true
		_, err := w.feed.UpdateProfile(w.ctx, shy, feed.Profile{ApprovesFollowers: &yes})
		require.NoError(w.t, err)
		for range 2 {
			w.follow(fan, shy)
			w.follow(other, shy)
		}
		requests, err := w.feed.FollowRequests(w.ctx, shy, shy.ID, feed.Page{})
		require.NoError(w.t, err)
		require.Len(w.t, requests.Edges, 2)
		hidden, err := w.feed.FollowRequests(w.ctx, fan, shy.ID, feed.Page{})
		require.NoError(w.t, err)
		require.Nil(w.t, hidden)
		id := w.post(shy, schema.Followers)
		require.Empty(w.t, w.timeline(fan, 10))
		for range 2 {
			_, err = w.feed.AcceptFollower(w.ctx, shy, fan.ID)
			require.NoError(w.t, err)
		}
		w.settle()
		require.Equal(w.t, []int64{id}, w.timeline(fan, 10))
		_, err = w.feed.RejectFollower(w.ctx, shy, other.ID)
		require.NoError(w.t, err)
		_, err = w.feed.AcceptFollower(w.ctx, shy, other.ID)
		require.Equal(w.t, feed.NotFound, feed.CodeOf(err))
		w.counted()
	})
}

func TestBlockClearsBothWays(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.user("a"), w.user("b")
		w.befriend(a, b)
		_, err := w.feed.Block(w.ctx, a, b.ID)
		require.NoError(w.t, err)
		w.counted()
		n, err := w.s.DB.Follow.Query().Count(w.ctx)
		require.NoError(w.t, err)
		require.Zero(w.t, n)
		for _, pair := range [][2]feed.Viewer{{a, b}, {b, a}} {
			_, err = w.feed.Follow(w.ctx, pair[0], pair[1].ID)
			require.Equal(w.t, feed.Forbidden, feed.CodeOf(err))
		}
		_, err = w.feed.Unblock(w.ctx, b, a.ID)
		require.NoError(w.t, err, "taking back a block that is not one's own changes nothing")
		require.Equal(w.t, 1, w.s.DB.Block.Query().Where(block.BlockerID(a.ID)).CountX(w.ctx))
		_, err = w.feed.Unblock(w.ctx, a, b.ID)
		require.NoError(w.t, err)
		n, err = w.s.DB.Follow.Query().Count(w.ctx)
		require.NoError(w.t, err)
		require.Zero(w.t, n, "follows do not come back")
		w.follow(b, a)
		require.Zero(w.t, w.s.DB.FollowRequest.Query().Where(followrequest.RequesterID(b.ID)).CountX(w.ctx))
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.user("a"), w.user("b")
		private, public := w.post(a, schema.Private), w.post(a, schema.Public)
		code := func(want feed.Code, err error) { w.t.Helper(); require.Equal(w.t, want, feed.CodeOf(err), "%v", err) }
		_, err := w.feed.Follow(w.ctx, a, a.ID)
		code(feed.BadInput, err)
		_, err = w.feed.Follow(w.ctx, a, 12345)
		code(feed.NotFound, err)
		_, err = w.feed.Follow(w.ctx, feed.Viewer{}, a.ID)
		code(feed.Unauthenticated, err)
		code(feed.NotFound, w.feed.DeletePost(w.ctx, b, private))
		code(feed.Forbidden, w.feed.DeletePost(w.ctx, b, public))
		code(feed.Unauthenticated, w.feed.DeletePost(w.ctx, feed.Viewer{}, public))
		_, err = w.feed.SetVisibility(w.ctx, b, public, schema.Private)
		code(feed.Forbidden, err)
		for _, text := range []string{"", "  \n ", "a\x00b", "bell\a", "\xff", string(make([]rune, 5001))} {
			_, err = w.feed.CreatePost(w.ctx, a, feed.Draft{Text: text})
			code(feed.BadInput, err)
		}
		for _, size := range []int{0, -1, 101} {
			_, err = w.feed.Timeline(w.ctx, a, feed.Page{First: &size}, feed.Latest)
			code(feed.BadInput, err)
			_, err = w.feed.Timeline(w.ctx, a, feed.Page{Last: &size}, feed.Ranked)
			code(feed.BadInput, err)
		}
		one, junk := 1, "junk"
		_, err = w.feed.Timeline(w.ctx, a, feed.Page{First: &one, Last: &one}, feed.Latest)
		code(feed.BadInput, err)
		_, err = w.feed.Timeline(w.ctx, a, feed.Page{After: &junk}, feed.Latest)
		code(feed.BadInput, err)
		page, err := w.feed.UserPosts(w.ctx, a, a.ID, feed.Page{})
		require.NoError(w.t, err)
		_, err = w.feed.Timeline(w.ctx, a, feed.Page{After: &page.Edges[0].Cursor}, feed.Latest)
		code(feed.BadInput, err)
		_, err = w.feed.Timeline(w.ctx, feed.Viewer{}, feed.Page{}, feed.Latest)
		code(feed.Unauthenticated, err)
	})
}

func TestIdempotencyKeyMakesOnePost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.user("a"), w.user("b")
		ids := make([]int64, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				p, err := w.feed.CreatePost(w.ctx, a, feed.Draft{Text: "once", IdempotencyKey: "k"})
				if err != nil {
					w.t.Error(err)
					return
				}
				ids[i] = p.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			require.Equal(w.t, ids[0], id)
		}
		p, err := w.feed.CreatePost(w.ctx, b, feed.Draft{Text: "once", IdempotencyKey: "k"})
		require.NoError(w.t, err)
		require.NotEqual(w.t, ids[0], p.ID, "keys are each user's own")
		w.settle()
		require.Equal(w.t, []int64{ids[0]}, w.timeline(a, 10))
		require.NoError(w.t, w.feed.DeletePost(w.ctx, a, ids[0]))
		_, err = w.feed.CreatePost(w.ctx, a, feed.Draft{Text: "once", IdempotencyKey: "k"})
		require.Equal(w.t, feed.Conflict, feed.CodeOf(err))
		w.counted()
	})
}

func TestUserLists(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(30)
		for _, fan := range u[1:] {
			w.follow(fan, u[0])
		}
		size := 7
		var got []int64
		var after *string
		for {
			page, err := w.feed.Followers(w.ctx, u[0].ID, feed.Page{First: &size, After: after})
			require.NoError(w.t, err)
			for _, fan := range page.Nodes() {
				got = append(got, fan.ID)
			}
			if !page.HasNextPage {
				break
			}
			after = &page.Edges[size-1].Cursor
		}
		want := []int64{}
		for _, fan := range u[1:] {
			want = append([]int64{fan.ID}, want...)
		}
		require.Equal(w.t, want, got, "newest follow first, each once")
		found, err := w.feed.SearchUsers(w.ctx, "USER2", feed.Page{})
		require.NoError(w.t, err)
		require.Len(w.t, found.Edges, 11, "user2 and user20 to user29")
		none, err := w.feed.SearchUsers(w.ctx, "%_", feed.Page{})
		require.NoError(w.t, err)
		require.Empty(w.t, none.Edges, "wildcards are letters like any other")
		following, err := w.feed.Following(w.ctx, u[5].ID, feed.Page{})
		require.NoError(w.t, err)
		require.Equal(w.t, u[0].ID, following.Edges[0].Node.ID)
	})
}
