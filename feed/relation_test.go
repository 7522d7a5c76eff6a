package feed_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage/storagetest"
)

// counted compares every counter with a recount.
func (w *world) counted() {
	w.Helper()
	_, err := feed.FoldCounters(w.Ctx, w.Stores.DB)
	require.NoError(w, err)
	users, err := w.Stores.DB.User.Query().All(w.Ctx)
	require.NoError(w, err)
	for _, u := range users {
		followers, err := w.Stores.DB.Follow.Query().Where(follow.FolloweeID(u.ID)).Count(w.Ctx)
		require.NoError(w, err)
		following, err := w.Stores.DB.Follow.Query().Where(follow.FollowerID(u.ID)).Count(w.Ctx)
		require.NoError(w, err)
		posts, err := w.Stores.DB.Post.Query().Where(post.AuthorID(u.ID)).All(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, [3]int{followers, following, len(posts)}, [3]int{u.FollowerCount, u.FollowingCount, u.PostCount}, u.Handle)
		of := map[schema.Visibility]int{}
		for _, p := range posts {
			of[p.Visibility]++
		}
		require.Equal(w, [3]int{of[schema.Public], of[schema.Followers], of[schema.Mutuals]},
			[3]int{u.PublicPostCount, u.FollowersPostCount, u.MutualsPostCount}, u.Handle)
	}
	all, err := w.Stores.DB.Post.Query().All(w.Ctx)
	require.NoError(w, err)
	for _, p := range all {
		likes, err := w.Stores.DB.Like.Query().Where(like.PostID(p.ID)).Count(w.Ctx)
		require.NoError(w, err)
		require.Equal(w, likes, p.LikeCount)
	}
}

func TestConcurrentChangesKeepOneEdgeAndTrueCounters(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(4)
		id := w.Post(u[0], schema.Public)
		changes := []func(me, other session.Viewer) error{
			func(me, other session.Viewer) error { _, err := w.Feed.Follow(w.Ctx, me, other.ID); return err },
			func(me, other session.Viewer) error { _, err := w.Feed.Follow(w.Ctx, me, other.ID); return err },
			func(me, other session.Viewer) error { _, err := w.Feed.Unfollow(w.Ctx, me, other.ID); return err },
			func(me, other session.Viewer) error { _, err := w.Feed.RemoveFollower(w.Ctx, me, other.ID); return err },
			func(me, other session.Viewer) error { _, err := w.Feed.Block(w.Ctx, me, other.ID); return err },
			func(me, other session.Viewer) error { _, err := w.Feed.Unblock(w.Ctx, me, other.ID); return err },
			func(me, _ session.Viewer) error { _, err := w.Feed.LikePost(w.Ctx, me, id); return err },
			func(me, _ session.Viewer) error { _, err := w.Feed.UnlikePost(w.Ctx, me, id); return err },
			func(session.Viewer, session.Viewer) error {
				_, err := w.Feed.SetVisibility(w.Ctx, u[0], id, schema.Mutuals)
				return err
			},
			func(session.Viewer, session.Viewer) error {
				_, err := w.Feed.SetVisibility(w.Ctx, u[0], id, schema.Public)
				return err
			},
			func(me, _ session.Viewer) error {
				p, err := w.Feed.CreatePost(w.Ctx, me, feed.Draft{Text: "x"})
				if err == nil {
					err = w.Feed.DeletePost(w.Ctx, me, p.ID)
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
						if err := change(me, other); err != nil && refusal.CodeOf(err) == "" {
							w.Errorf("change %d: %v", i, err)
						}
					})
				}
			}
		}
		wg.Wait()
		w.Drain()
		w.counted()
		blocks, err := w.Stores.DB.Block.Query().All(w.Ctx)
		require.NoError(w, err)
		for _, b := range blocks {
			n, err := w.Stores.DB.Follow.Query().Where(follow.FollowerIDIn(b.BlockerID, b.BlockedID), follow.FolloweeIDIn(b.BlockerID, b.BlockedID)).Count(w.Ctx)
			require.NoError(w, err)
			require.Zero(w, n, "no follow beside a block")
		}
	})
}

func TestFollowRequests(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		shy, fan, other := w.User("shy"), w.User("fan"), w.User("other")
		yes := true
		_, err := w.Accounts.UpdateProfile(w.Ctx, shy, account.Profile{ApprovesFollowers: &yes})
		require.NoError(w, err)
		for range 2 {
			w.Follow(fan, shy)
			w.Follow(other, shy)
		}
		requests, err := w.Feed.FollowRequests(w.Ctx, shy, shy.ID, paging.Page{})
		require.NoError(w, err)
		require.Len(w, requests.Edges, 2)
		hidden, err := w.Feed.FollowRequests(w.Ctx, fan, shy.ID, paging.Page{})
		require.NoError(w, err)
		require.Nil(w, hidden)
		id := w.Post(shy, schema.Followers)
		require.Empty(w, w.Timeline(fan, 10))
		for range 2 {
			_, err = w.Feed.AcceptFollower(w.Ctx, shy, fan.ID)
			require.NoError(w, err)
		}
		w.Drain()
		require.Equal(w, []int64{id}, w.Timeline(fan, 10))
		_, err = w.Feed.Unfollow(w.Ctx, other, shy.ID)
		require.NoError(w, err, "withdrawn")
		requests, err = w.Feed.FollowRequests(w.Ctx, shy, shy.ID, paging.Page{})
		require.NoError(w, err)
		require.Empty(w, requests.Edges)
		_, err = w.Feed.AcceptFollower(w.Ctx, shy, other.ID)
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
		w.Follow(other, shy)
		for range 2 {
			_, err = w.Feed.RejectFollower(w.Ctx, shy, other.ID)
			require.NoError(w, err)
		}
		_, err = w.Feed.AcceptFollower(w.Ctx, shy, other.ID)
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
		_, err = w.Feed.RejectFollower(w.Ctx, shy, fan.ID)
		require.Equal(w, refusal.NoSuchRequest, refusal.ReasonOf(err), "a follower is not refused any more")
		w.counted()
	})
}

// A removed follower no longer follows, as after an unfollow, and may follow again.
func TestRemoveFollower(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob, asks := w.User("ann"), w.User("bob"), w.User("asks")
		w.Befriend(ann, bob)
		ofAnn, ofBob := w.Post(ann, schema.Followers), w.Post(bob, schema.Followers)
		w.Post(bob, schema.Mutuals)
		w.Drain()
		require.Len(w, w.Timeline(bob, 10), 3)
		require.Len(w, w.Timeline(ann, 10), 3)
		w.AwaitInbox(bob)
		u, err := w.Feed.RemoveFollower(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		require.Equal(w, bob.ID, u.ID)
		require.Zero(w, u.FollowingCount, "the user as changed")
		_, err = w.Feed.Post(w.Ctx, bob, ofAnn)
		require.ErrorIs(w, err, refusal.ErrNoSuchPost, "at once")
		require.Equal(w, feedtest.NewestFirst(ofBob, ofAnn), w.Timeline(ann, 10), "ann still follows bob, and is no friend")
		w.Drain()
		require.NotContains(w, w.Timeline(bob, 10), ofAnn)
		found, err := w.Audit.Verify(w.Ctx, bob.ID, 0)
		require.NoError(w, err)
		require.Empty(w, found.Extra, "the inbox has it no more")
		w.counted()
		relations, err := w.Feed.Relations(w.Ctx, ann, []int64{bob.ID})
		require.NoError(w, err)
		require.Equal(w, visibility.Following, *relations[0])

		yes := true
		_, err = w.Accounts.UpdateProfile(w.Ctx, ann, account.Profile{ApprovesFollowers: &yes})
		require.NoError(w, err)
		w.Follow(bob, ann)
		w.Follow(asks, ann)
		_, err = w.Feed.RemoveFollower(w.Ctx, ann, asks.ID)
		require.NoError(w, err)
		requests, err := w.Feed.FollowRequests(w.Ctx, ann, ann.ID, paging.Page{})
		require.NoError(w, err)
		require.Len(w, requests.Edges, 2, "a request is rejected otherwise")

		_, err = w.Feed.RemoveFollower(w.Ctx, ann, ann.ID)
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err))
		_, err = w.Feed.RemoveFollower(w.Ctx, ann, 12345)
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
		_, err = w.Feed.RemoveFollower(w.Ctx, session.Viewer{}, ann.ID)
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err))
	})
}

func TestBlockClearsBothWays(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.User("a"), w.User("b")
		w.Befriend(a, b)
		_, err := w.Feed.Block(w.Ctx, a, b.ID)
		require.NoError(w, err)
		w.counted()
		n, err := w.Stores.DB.Follow.Query().Count(w.Ctx)
		require.NoError(w, err)
		require.Zero(w, n)
		for _, pair := range [][2]session.Viewer{{a, b}, {b, a}} {
			_, err = w.Feed.Follow(w.Ctx, pair[0], pair[1].ID)
			require.Equal(w, refusal.Forbidden, refusal.CodeOf(err))
		}
		_, err = w.Feed.Unblock(w.Ctx, b, a.ID)
		require.NoError(w, err, "taking back a block that is not one's own changes nothing")
		require.Equal(w, 1, w.Stores.DB.Block.Query().Where(block.BlockerID(a.ID)).CountX(w.Ctx))
		_, err = w.Feed.Unblock(w.Ctx, a, b.ID)
		require.NoError(w, err)
		n, err = w.Stores.DB.Follow.Query().Count(w.Ctx)
		require.NoError(w, err)
		require.Zero(w, n, "follows do not come back")
		w.Follow(b, a)
		require.Zero(w, w.Stores.DB.FollowRequest.Query().Where(followrequest.RequesterID(b.ID)).CountX(w.Ctx))
	})
}

// Access can be taken from a hidden user and stays taken when the user is restored. Access cannot
// be given to a hidden user. A user whose deletion has begun is not found.
func TestAccessIsTakenFromHiddenUsers(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		type change func(context.Context, session.Viewer, int64) (*ent.User, error)
		takes := map[string]struct {
			do   change
			left visibility.Relation // the viewer follows the other user and is followed
		}{
			"unfollow":        {w.Feed.Unfollow, visibility.FollowedBy},
			"remove follower": {w.Feed.RemoveFollower, visibility.Following},
			"block":           {w.Feed.Block, visibility.Blocking},
			"mute":            {w.Feed.Mute, visibility.Mutual | visibility.Muting},
			"unmute":          {w.Feed.Unmute, visibility.Mutual},
			"unblock":         {w.Feed.Unblock, visibility.Mutual},
		}
		none := func(*ent.Tx, *ent.User) error { return nil }
		hide := map[string]func(id int64) (show func()){
			"suspended": func(id int64) func() {
				_, err := w.Accounts.Suspend(w.Ctx, id, account.Suspension{}, none)
				require.NoError(w, err)
				return func() {
					_, err := w.Accounts.Unsuspend(w.Ctx, id, none)
					require.NoError(w, err)
				}
			},
			"leaving": func(id int64) func() {
				_, _, err := w.Accounts.Delete(w.Ctx, id, feedtest.Grace)
				require.NoError(w, err)
				return func() {
					_, err := w.Accounts.Restore(w.Ctx, id)
					require.NoError(w, err)
				}
			},
		}
		n := 0
		user := func() session.Viewer { n++; return w.User(fmt.Sprint("user", n)) }
		for how, hide := range hide {
			for doing, change := range takes {
				alice, bob := user(), user()
				w.Befriend(alice, bob)
				post := w.Post(alice, schema.Followers)
				show := hide(bob.ID)
				for range 2 { // the second call changes nothing
					u, err := change.do(w.Ctx, alice, bob.ID)
					require.NoError(w, err, "%s while %s", doing, how)
					require.Equal(w, &ent.User{ID: bob.ID, CreatedAt: ids.TimeOf(bob.ID), Data: new(ent.NoData)}, u, "nothing of a hidden user is shown")
				}
				followers, err := w.Feed.Followers(w.Ctx, bob.ID, paging.Page{})
				require.NoError(w, err)
				require.Empty(w, followers.Edges, "nor who follows them")
				show()
				relations, err := w.Feed.Relations(w.Ctx, alice, []int64{bob.ID})
				require.NoError(w, err)
				require.Equal(w, change.left, *relations[0], "%s while %s", doing, how)
				_, err = w.Feed.Post(w.Ctx, bob, post)
				require.Equal(w, change.left.Has(visibility.FollowedBy), err == nil, "%s while %s: %v", doing, how, err)
			}
			// Follow requests in both directions.
			yes, alice, bob := true, user(), user()
			for _, v := range []session.Viewer{alice, bob} {
				_, err := w.Accounts.UpdateProfile(w.Ctx, v, account.Profile{ApprovesFollowers: &yes})
				require.NoError(w, err)
			}
			w.Follow(alice, bob)
			w.Follow(bob, alice)
			show := hide(bob.ID)
			for doing, change := range map[string]change{"follow": w.Feed.Follow, "accept": w.Feed.AcceptFollower} {
				_, err := change(w.Ctx, alice, bob.ID)
				require.ErrorIs(w, err, refusal.ErrNoSuchUser, "%s while %s", doing, how)
			}
			_, err := w.Feed.Unfollow(w.Ctx, alice, bob.ID)
			require.NoError(w, err, "a request is withdrawn")
			_, err = w.Feed.RejectFollower(w.Ctx, alice, bob.ID)
			require.NoError(w, err)
			show()
			require.Zero(w, w.Stores.DB.FollowRequest.Query().Where(followrequest.RequesterIDIn(alice.ID, bob.ID)).CountX(w.Ctx))
		}
		w.Drain()
		w.counted()

		alice, bob := user(), user()
		w.Befriend(alice, bob)
		_, _, err := w.Accounts.Delete(w.Ctx, bob.ID, 0)
		require.NoError(w, err)
		for doing, change := range takes {
			_, err := change.do(w.Ctx, alice, bob.ID)
			require.ErrorIs(w, err, refusal.ErrNoSuchUser, doing)
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.User("a"), w.User("b")
		private, public := w.Post(a, schema.Private), w.Post(a, schema.Public)
		code := func(want refusal.Code, err error) { w.Helper(); require.Equal(w, want, refusal.CodeOf(err), "%v", err) }
		_, err := w.Feed.Follow(w.Ctx, a, a.ID)
		code(refusal.BadInput, err)
		_, err = w.Feed.Follow(w.Ctx, a, 12345)
		code(refusal.NotFound, err)
		_, err = w.Feed.Follow(w.Ctx, session.Viewer{}, a.ID)
		code(refusal.Unauthenticated, err)
		code(refusal.NotFound, w.Feed.DeletePost(w.Ctx, b, private))
		code(refusal.Forbidden, w.Feed.DeletePost(w.Ctx, b, public))
		code(refusal.Unauthenticated, w.Feed.DeletePost(w.Ctx, session.Viewer{}, public))
		_, err = w.Feed.SetVisibility(w.Ctx, b, public, schema.Private)
		code(refusal.Forbidden, err)
		for _, text := range []string{"", "  \n ", "a\x00b", "bell\a", "\xff", string(make([]rune, 5001))} {
			_, err = w.Feed.CreatePost(w.Ctx, a, feed.Draft{Text: text})
			code(refusal.BadInput, err)
		}
		for _, size := range []int{0, -1, 101} {
			_, err = w.Home.Timeline(w.Ctx, a, paging.Page{First: &size}, home.Latest)
			code(refusal.BadInput, err)
			_, err = w.Home.Timeline(w.Ctx, a, paging.Page{Last: &size}, home.Ranked)
			code(refusal.BadInput, err)
		}
		one, junk := 1, "junk"
		_, err = w.Home.Timeline(w.Ctx, a, paging.Page{First: &one, Last: &one}, home.Latest)
		code(refusal.BadInput, err)
		_, err = w.Home.Timeline(w.Ctx, a, paging.Page{After: &junk}, home.Latest)
		code(refusal.BadInput, err)
		page, err := w.Feed.UserPosts(w.Ctx, a, a.ID, paging.Page{})
		require.NoError(w, err)
		_, err = w.Home.Timeline(w.Ctx, a, paging.Page{After: &page.Edges[0].Cursor}, home.Latest)
		code(refusal.BadInput, err)
		_, err = w.Home.Timeline(w.Ctx, session.Viewer{}, paging.Page{}, home.Latest)
		code(refusal.Unauthenticated, err)
	})
}

func TestIdempotencyKeyMakesOnePost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		a, b := w.User("a"), w.User("b")
		ids := make([]int64, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				p, err := w.Feed.CreatePost(w.Ctx, a, feed.Draft{Text: "once", IdempotencyKey: "k"})
				if err != nil {
					w.Error(err)
					return
				}
				ids[i] = p.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			require.Equal(w, ids[0], id)
		}
		p, err := w.Feed.CreatePost(w.Ctx, b, feed.Draft{Text: "once", IdempotencyKey: "k"})
		require.NoError(w, err)
		require.NotEqual(w, ids[0], p.ID, "keys are each user's own")
		w.Drain()
		require.Equal(w, []int64{ids[0]}, w.Timeline(a, 10))
		require.NoError(w, w.Feed.DeletePost(w.Ctx, a, ids[0]))
		_, err = w.Feed.CreatePost(w.Ctx, a, feed.Draft{Text: "once", IdempotencyKey: "k"})
		require.Equal(w, refusal.Conflict, refusal.CodeOf(err))
		w.counted()
	})
}

func TestUserLists(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(30)
		for _, fan := range u[1:] {
			w.Follow(fan, u[0])
		}
		size := 7
		var got []int64
		var after *string
		for {
			page, err := w.Feed.Followers(w.Ctx, u[0].ID, paging.Page{First: &size, After: after})
			require.NoError(w, err)
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
		require.Equal(w, want, got, "newest follow first, each once")
		// The users were inserted without KeepNames.
		_, err := account.IndexNames(w.Ctx, w.Stores.DB, len(u))
		require.NoError(w, err)
		found, err := w.Directory.Search(w.Ctx, "USER2", paging.Page{})
		require.NoError(w, err)
		require.Len(w, found.Edges, 11, "user2 and user20 to user29")
		none, err := w.Directory.Search(w.Ctx, "%_", paging.Page{})
		require.NoError(w, err)
		require.Empty(w, none.Edges, "wildcards are letters like any other")
		following, err := w.Feed.Following(w.Ctx, u[5].ID, paging.Page{})
		require.NoError(w, err)
		require.Equal(w, u[0].ID, following.Edges[0].Node.ID)
	})
}

// A mute, and an operation whose relation already exists, wait for no lock on either user.
func TestMutesAndNoOpsTakeNoLock(t *testing.T) {
	t.Parallel()
	s := storagetest.Real(t)
	w := newWorld(t, s, feedtest.Options{})
	ann, bob, cat := w.User("ann"), w.User("bob"), w.User("cat")
	w.Follow(ann, bob)
	_, err := w.Feed.Block(w.Ctx, ann, cat.ID)
	require.NoError(t, err)
	jobs := s.DB.Job.Query().CountX(w.Ctx)

	lock, err := s.SQL.BeginTx(w.Ctx, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.Rollback()) }()
	_, err = lock.ExecContext(w.Ctx, "SELECT id FROM users FOR NO KEY UPDATE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(w.Ctx, 30*time.Second)
	defer cancel()
	do := func(change func(context.Context, session.Viewer, int64) (*ent.User, error), other session.Viewer, enqueued int) {
		t.Helper()
		u, err := change(ctx, ann, other.ID)
		require.NoError(t, err)
		require.Equal(t, other.ID, u.ID)
		jobs += enqueued
		require.Equal(t, jobs, s.DB.Job.Query().CountX(w.Ctx))
	}
	do(w.Feed.Follow, bob, 0)
	do(w.Feed.Mute, bob, 1)
	do(w.Feed.Mute, bob, 0)
	do(w.Feed.Unmute, bob, 1)
	do(w.Feed.Unmute, bob, 0)
	do(w.Feed.Unblock, bob, 0)
	do(w.Feed.Block, cat, 0)
	do(w.Feed.Unfollow, cat, 0)
	do(w.Feed.RemoveFollower, bob, 0)
	_, err = w.Feed.Unfollow(ctx, ann, 1)
	require.ErrorIs(t, err, refusal.ErrNoSuchUser)
	_, err = w.Feed.Mute(ctx, ann, 1)
	require.ErrorIs(t, err, refusal.ErrNoSuchUser)
}
