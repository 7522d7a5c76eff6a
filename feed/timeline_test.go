package feed_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/timeline"
)

func TestPostReachesFollowersAndTheAuthor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(20)
		author := u[0]
		for _, follower := range u[1:] {
			w.follow(follower, author)
			w.ready(follower)
		}
		w.settle()
		id := w.post(author, schema.Public)
		require.Equal(w.t, []int64{id}, w.timeline(author, 10), "read your own write")
		w.settle()
		for _, follower := range u[1:] {
			ids, covered, err := w.tl.Page(w.ctx, timeline.Inbox(follower.ID), timeline.Range{Limit: 10})
			require.NoError(w.t, err)
			require.Equal(w.t, timeline.Ready, covered.State)
			require.Equal(w.t, []int64{id}, ids, "pushed")
			require.Equal(w.t, []int64{id}, w.timeline(follower, 10))
		}
	})
}

// Pages of every size, in both directions, across the border between Redis and
// SQL, while posts arrive and while Redis is wiped, show each entry once.
func TestPagingIsExact(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(4)
		reader := u[0]
		var all []int64
		for range 2 {
			for _, author := range u {
				all = append(all, w.history(author, 60)...)
			}
		}
		for _, author := range u[1:] {
			w.follow(reader, author)
		}
		w.settle()
		all = newestFirst(all...)
		require.Greater(w.t, len(all), inboxCap, "part of the timeline lies below the inbox")
		require.Equal(w.t, all, w.walk(reader, 100, nil), "without an inbox")
		w.ready(reader)
		_, covered, err := w.tl.Page(w.ctx, timeline.Inbox(reader.ID), timeline.Range{})
		require.NoError(w.t, err)
		require.Equal(w.t, all[inboxCap-1], covered.Floor, "the inbox ends before the timeline does")
		require.Equal(w.t, all, w.walk(reader, 7, nil), "across the border")
		require.Equal(w.t, all, w.walk(reader, 29, func(page int) {
			w.post(u[1+page%3], schema.Public)
			if page == 4 {
				require.NoError(w.t, w.s.Redis.FlushAll(w.ctx).Err())
			}
		}), "while posts arrive and Redis is wiped")
		w.settle()

		size, everything := 17, w.walk(reader, 100, nil)
		var up []int64
		end, err := w.feed.Timeline(w.ctx, reader, feed.Page{Last: &size}, feed.Latest)
		require.NoError(w.t, err)
		for page := end; ; {
			up = append(postIDs(page), up...)
			if !page.HasPreviousPage {
				break
			}
			page, err = w.feed.Timeline(w.ctx, reader, feed.Page{Last: &size, Before: &page.Edges[0].Cursor}, feed.Latest)
			require.NoError(w.t, err)
		}
		require.Equal(w.t, everything, up, "upwards from the oldest")
	})
}

func TestRelationsMoveThePostsTheyShow(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.ready(ann)
		posts := w.history(bob, 3)
		w.follow(ann, bob)
		require.Equal(w.t, newestFirst(posts...), w.timeline(ann, 10), "a follow brings posts in, at once")

		both := func(v feed.Viewer, want []int64) {
			w.t.Helper()
			require.Equal(w.t, want, w.timeline(v, 10))
			w.settle()
			require.Equal(w.t, want, w.timeline(v, 10))
			ids, covered, err := w.tl.Page(w.ctx, timeline.Inbox(v.ID), timeline.Range{Limit: 10})
			require.NoError(w.t, err)
			require.Equal(w.t, timeline.Ready, covered.State)
			require.ElementsMatch(w.t, want, ids, "the inbox itself agrees")
		}
		both(ann, newestFirst(posts...))
		_, err := w.feed.Mute(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		both(ann, []int64{})
		_, err = w.feed.Unmute(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		both(ann, newestFirst(posts...))
		_, err = w.feed.Unfollow(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		both(ann, []int64{})

		w.befriend(ann, bob)
		w.ready(bob)
		secret := w.post(bob, schema.Mutuals)
		w.settle()
		both(ann, newestFirst(append(posts, secret)...))
		_, err = w.feed.Unfollow(w.ctx, bob, ann.ID)
		require.NoError(w.t, err)
		both(ann, newestFirst(posts...))
		w.follow(bob, ann)
		w.settle()
		both(ann, newestFirst(append(posts, secret)...))
		_, err = w.feed.Block(w.ctx, bob, ann.ID)
		require.NoError(w.t, err)
		both(ann, []int64{})
		both(bob, newestFirst(append(posts, secret)...))
	})
}

// With nobody at work behind it, a restricting mutation hides at once.
func TestHiddenAtOnceWithoutWorkers(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		u := w.users(3)
		ann, bob, eve := u[0], u[1], u[2]
		w.befriend(ann, bob)
		w.follow(eve, bob)
		gone, narrowed, kept := w.post(bob, schema.Public), w.post(bob, schema.Public), w.post(bob, schema.Followers)
		for _, v := range u {
			w.ready(v)
		}
		require.Equal(w.t, []int64{kept, narrowed, gone}, w.timeline(eve, 10))

		require.NoError(w.t, w.feed.DeletePost(w.ctx, bob, gone))
		_, err := w.feed.SetVisibility(w.ctx, bob, narrowed, schema.Mutuals)
		require.NoError(w.t, err)
		require.Equal(w.t, []int64{kept}, w.timeline(eve, 10))
		require.Equal(w.t, []int64{kept, narrowed}, w.timeline(ann, 10))
		_, err = w.feed.Block(w.ctx, bob, eve.ID)
		require.NoError(w.t, err)
		require.Empty(w.t, w.timeline(eve, 10))
		_, err = w.feed.Unfollow(w.ctx, bob, ann.ID)
		require.NoError(w.t, err)
		require.Equal(w.t, []int64{kept}, w.timeline(ann, 10), "no longer friends")
	})
}

func TestVisibilityAtEveryDoor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		author, friend, follower, stranger, blocked := w.user("author"), w.user("friend"), w.user("follower"), w.user("stranger"), w.user("blocked")
		w.befriend(author, friend)
		w.follow(follower, author)
		_, err := w.feed.Block(w.ctx, author, blocked.ID)
		require.NoError(w.t, err)
		viewers := map[string]feed.Viewer{"author": author, "friend": friend, "follower": follower, "stranger": stranger, "blocked": blocked, "anonymous": {}}
		for visibility, sees := range map[schema.Visibility][]string{
			schema.Public:    {"author", "friend", "follower", "stranger", "anonymous"},
			schema.Followers: {"author", "friend", "follower"},
			schema.Mutuals:   {"author", "friend"},
			schema.Private:   {"author"},
		} {
			id := w.post(author, visibility)
			w.settle()
			for name, v := range viewers {
				may := slices.Contains(sees, name)
				p, err := w.feed.Post(w.ctx, v, id)
				if may {
					require.NoError(w.t, err, "%s, %s", visibility, name)
					require.Equal(w.t, id, p.ID)
				} else {
					require.Equal(w.t, feed.NotFound, feed.CodeOf(err), "%s, %s", visibility, name)
					_, err := w.feed.LikePost(w.ctx, v, id)
					require.Contains(w.t, []feed.Code{feed.NotFound, feed.Unauthenticated}, feed.CodeOf(err), "%s, %s", visibility, name)
				}
				page, err := w.feed.UserPosts(w.ctx, v, author.ID, feed.Page{})
				require.NoError(w.t, err)
				require.Equal(w.t, may, slices.Contains(postIDs(page), id), "profile: %s, %s", visibility, name)
				if v.ID != 0 {
					inTimeline := may && name != "stranger"
					require.Equal(w.t, inTimeline, slices.Contains(w.timeline(v, 100), id), "timeline: %s, %s", visibility, name)
				}
			}
		}
	})
}

func TestWidenAndNarrow(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		w.ready(ann)
		id := w.post(bob, schema.Private)
		w.settle()
		require.Empty(w.t, w.timeline(ann, 10))
		for _, to := range []schema.Visibility{schema.Public, schema.Mutuals, schema.Followers, schema.Private} {
			_, err := w.feed.SetVisibility(w.ctx, bob, id, to)
			require.NoError(w.t, err)
			w.settle()
			want := []int64{}
			if to == schema.Public || to == schema.Followers {
				want = append(want, id)
			}
			require.Equal(w.t, want, w.timeline(ann, 10), "%s", to)
			ids, _, err := w.tl.Page(w.ctx, timeline.Inbox(ann.ID), timeline.Range{Limit: 10})
			require.NoError(w.t, err)
			require.ElementsMatch(w.t, want, ids, "%s", to)
		}
	})
}

func TestWipedRedisHealsOnTheNextRead(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		var want []int64
		for range 5 {
			want = append(want, w.post(bob, schema.Public))
			require.NoError(w.t, w.s.Redis.FlushAll(w.ctx).Err())
			require.Equal(w.t, newestFirst(want...), w.timeline(ann, 10))
		}
		w.ready(ann)
		want = append(want, w.post(bob, schema.Public))
		w.settle()
		require.Equal(w.t, newestFirst(want...), w.timeline(ann, 10))
	})
}

func TestUnreadAndMarker(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		unread := func() int {
			n, err := w.feed.UnreadCount(w.ctx, ann)
			require.NoError(w.t, err)
			return n
		}
		require.Zero(w.t, unread())
		w.ready(ann)
		for range 3 {
			w.post(bob, schema.Public)
		}
		w.post(ann, schema.Public)
		w.post(bob, schema.Mutuals)
		w.settle()
		require.Equal(w.t, 3, unread(), "own posts and hidden ones do not count")
		page, err := w.feed.Timeline(w.ctx, ann, feed.Page{}, feed.Latest)
		require.NoError(w.t, err)
		n, err := w.feed.MarkRead(w.ctx, ann, page.Edges[2].Cursor)
		require.NoError(w.t, err)
		require.Equal(w.t, 1, n)
		n, err = w.feed.MarkRead(w.ctx, ann, page.Edges[3].Cursor)
		require.NoError(w.t, err)
		require.Equal(w.t, 1, n, "the marker moves forwards only")
		_, err = w.feed.MarkRead(w.ctx, bob, page.Edges[0].Cursor)
		require.Equal(w.t, feed.BadInput, feed.CodeOf(err), "another's cursor")
	})
}
