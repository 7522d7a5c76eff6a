package home_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/timeline"
)

func TestPostReachesFollowersAndTheAuthor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(20)
		author := u[0]
		for _, follower := range u[1:] {
			w.Follow(follower, author)
			w.AwaitInbox(follower)
		}
		w.Drain()
		id := w.Post(author, schema.Public)
		require.Equal(w, []int64{id}, w.Timeline(author, 10), "read your own write")
		w.Drain()
		for _, follower := range u[1:] {
			ids, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(follower.ID), timeline.Range{Limit: 10})
			require.NoError(w, err)
			require.Equal(w, timeline.Ready, covered.State)
			require.Equal(w, []int64{id}, ids, "pushed")
			require.Equal(w, []int64{id}, w.Timeline(follower, 10))
		}
	})
}

// Pages of every size show each entry once: in both directions, across the border between Redis
// and SQL, while posts arrive, and while Redis is wiped.
func TestPagingIsExact(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(4)
		reader := u[0]
		var all []int64
		for range 2 {
			for _, author := range u {
				all = append(all, w.History(author, 60)...)
			}
		}
		for _, author := range u[1:] {
			w.Follow(reader, author)
		}
		w.Drain()
		all = feedtest.NewestFirst(all...)
		require.Greater(w, len(all), feedtest.InboxCap, "part of the timeline lies below the inbox")
		require.Equal(w, all, w.Walk(reader, 100, nil), "without an inbox")
		w.AwaitInbox(reader)
		_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(reader.ID), timeline.Range{})
		require.NoError(w, err)
		require.Equal(w, all[feedtest.InboxCap-1], covered.Floor, "the inbox ends before the timeline does")
		require.Equal(w, all, w.Walk(reader, 7, nil), "across the border")
		require.Equal(w, all, w.Walk(reader, 29, func(page int) {
			w.Post(u[1+page%3], schema.Public)
			if page == 4 {
				require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
			}
		}), "while posts arrive and Redis is wiped")
		w.Drain()

		size, everything := 17, w.Walk(reader, 100, nil)
		var up []int64
		end, err := w.Home.Timeline(w.Ctx, reader, paging.Page{Last: &size}, home.Latest)
		require.NoError(w, err)
		for page := end; ; {
			up = append(feedtest.PostIDs(page), up...)
			if !page.HasPreviousPage {
				break
			}
			page, err = w.Home.Timeline(w.Ctx, reader, paging.Page{Last: &size, Before: &page.Edges[0].Cursor}, home.Latest)
			require.NoError(w, err)
		}
		require.Equal(w, everything, up, "upwards from the oldest")
	})
}

func TestRelationsMoveThePostsTheyShow(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.AwaitInbox(ann)
		posts := w.History(bob, 3)
		w.Follow(ann, bob)
		require.Equal(w, feedtest.NewestFirst(posts...), w.Timeline(ann, 10), "a follow brings posts in, at once")

		both := func(v session.Viewer, want []int64) {
			w.Helper()
			require.Equal(w, want, w.Timeline(v, 10))
			w.Drain()
			require.Equal(w, want, w.Timeline(v, 10))
			ids, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(v.ID), timeline.Range{Limit: 10})
			require.NoError(w, err)
			require.Equal(w, timeline.Ready, covered.State)
			require.ElementsMatch(w, want, ids, "the inbox itself agrees")
		}
		both(ann, feedtest.NewestFirst(posts...))
		_, err := w.Feed.Mute(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		both(ann, []int64{})
		_, err = w.Feed.Unmute(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		both(ann, feedtest.NewestFirst(posts...))
		_, err = w.Feed.Unfollow(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		both(ann, []int64{})

		w.Befriend(ann, bob)
		w.AwaitInbox(bob)
		secret := w.Post(bob, schema.Mutuals)
		w.Drain()
		both(ann, feedtest.NewestFirst(append(posts, secret)...))
		_, err = w.Feed.Unfollow(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		both(ann, feedtest.NewestFirst(posts...))
		w.Follow(bob, ann)
		w.Drain()
		both(ann, feedtest.NewestFirst(append(posts, secret)...))
		_, err = w.Feed.Block(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		both(ann, []int64{})
		both(bob, feedtest.NewestFirst(append(posts, secret)...))
	})
}

// A mutation that reduces visibility hides posts at once, without workers.
func TestHiddenAtOnceWithoutWorkers(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.Users(3)
		ann, bob, eve := u[0], u[1], u[2]
		w.Befriend(ann, bob)
		w.Follow(eve, bob)
		gone, narrowed, kept := w.Post(bob, schema.Public), w.Post(bob, schema.Public), w.Post(bob, schema.Followers)
		for _, v := range u {
			w.AwaitInbox(v)
		}
		require.Equal(w, []int64{kept, narrowed, gone}, w.Timeline(eve, 10))

		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, gone))
		_, err := w.Feed.SetVisibility(w.Ctx, bob, narrowed, schema.Mutuals)
		require.NoError(w, err)
		require.Equal(w, []int64{kept}, w.Timeline(eve, 10))
		require.Equal(w, []int64{kept, narrowed}, w.Timeline(ann, 10))
		_, err = w.Feed.Block(w.Ctx, bob, eve.ID)
		require.NoError(w, err)
		require.Empty(w, w.Timeline(eve, 10))
		_, err = w.Feed.Unfollow(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		require.Equal(w, []int64{kept}, w.Timeline(ann, 10), "no longer friends")
	})
}

func TestVisibilityOnEverySurface(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		author, friend, follower, stranger, blocked := w.User("author"), w.User("friend"), w.User("follower"), w.User("stranger"), w.User("blocked")
		w.Befriend(author, friend)
		w.Follow(follower, author)
		_, err := w.Feed.Block(w.Ctx, author, blocked.ID)
		require.NoError(w, err)
		viewers := map[string]session.Viewer{"author": author, "friend": friend, "follower": follower, "stranger": stranger, "blocked": blocked, "anonymous": {}}
		for visibility, sees := range map[schema.Visibility][]string{
			schema.Public:    {"author", "friend", "follower", "stranger", "anonymous"},
			schema.Followers: {"author", "friend", "follower"},
			schema.Mutuals:   {"author", "friend"},
			schema.Private:   {"author"},
		} {
			id := w.Post(author, visibility)
			w.Drain()
			for name, v := range viewers {
				may := slices.Contains(sees, name)
				p, err := w.Feed.Post(w.Ctx, v, id)
				if may {
					require.NoError(w, err, "%s, %s", visibility, name)
					require.Equal(w, id, p.ID)
				} else {
					require.Equal(w, refusal.NotFound, refusal.CodeOf(err), "%s, %s", visibility, name)
					_, err := w.Feed.LikePost(w.Ctx, v, id)
					require.Contains(w, []refusal.Code{refusal.NotFound, refusal.Unauthenticated}, refusal.CodeOf(err), "%s, %s", visibility, name)
				}
				page, err := w.Feed.UserPosts(w.Ctx, v, author.ID, paging.Page{})
				require.NoError(w, err)
				require.Equal(w, may, slices.Contains(feedtest.PostIDs(page), id), "profile: %s, %s", visibility, name)
				if v.ID != 0 {
					inTimeline := may && name != "stranger"
					require.Equal(w, inTimeline, slices.Contains(w.Timeline(v, 100), id), "timeline: %s, %s", visibility, name)
				}
			}
		}
	})
}

func TestWidenAndNarrow(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		w.AwaitInbox(ann)
		id := w.Post(bob, schema.Private)
		w.Drain()
		require.Empty(w, w.Timeline(ann, 10))
		for _, to := range []schema.Visibility{schema.Public, schema.Mutuals, schema.Followers, schema.Private} {
			_, err := w.Feed.SetVisibility(w.Ctx, bob, id, to)
			require.NoError(w, err)
			w.Drain()
			want := []int64{}
			if to == schema.Public || to == schema.Followers {
				want = append(want, id)
			}
			require.Equal(w, want, w.Timeline(ann, 10), "%s", to)
			ids, _, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(ann.ID), timeline.Range{Limit: 10})
			require.NoError(w, err)
			require.ElementsMatch(w, want, ids, "%s", to)
		}
	})
}

func TestWipedRedisHealsOnTheNextRead(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		var want []int64
		for range 5 {
			want = append(want, w.Post(bob, schema.Public))
			require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
			require.Equal(w, feedtest.NewestFirst(want...), w.Timeline(ann, 10))
		}
		w.AwaitInbox(ann)
		want = append(want, w.Post(bob, schema.Public))
		w.Drain()
		require.Equal(w, feedtest.NewestFirst(want...), w.Timeline(ann, 10))
	})
}

func TestUnreadAndMarker(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		unread := func() int {
			n, err := w.Home.Unread.Count(w.Ctx, ann)
			require.NoError(w, err)
			return n
		}
		require.Zero(w, unread())
		w.AwaitInbox(ann)
		for range 3 {
			w.Post(bob, schema.Public)
		}
		w.Post(ann, schema.Public)
		w.Post(bob, schema.Mutuals)
		w.Drain()
		require.Equal(w, 3, unread(), "own posts and hidden ones do not count")
		page, err := w.Home.Timeline(w.Ctx, ann, paging.Page{}, home.Latest)
		require.NoError(w, err)
		n, err := w.Home.Unread.MarkRead(w.Ctx, ann, page.Edges[2].Cursor)
		require.NoError(w, err)
		require.Equal(w, 1, n)
		n, err = w.Home.Unread.MarkRead(w.Ctx, ann, page.Edges[3].Cursor)
		require.NoError(w, err)
		require.Equal(w, 1, n, "the marker moves forwards only")
		_, err = w.Home.Unread.MarkRead(w.Ctx, bob, page.Edges[0].Cursor)
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err), "another's cursor")
	})
}
