package bulk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/stream"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func upsertPosts(w *feedtest.World, list ...bulk.Post) []int64 {
	w.Helper()
	results, err := w.Bulk.Posts(w.Ctx, app, list)
	require.NoError(w, err)
	posts := make([]int64, len(list))
	for i, r := range results {
		require.NoError(w, r.Err)
		posts[i] = r.Post
	}
	return posts
}

func ago(d time.Duration) *time.Time {
	at := time.Now().Add(-d).Truncate(time.Millisecond)
	return &at
}

func TestPosts(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob")
		followers := schema.Followers
		private := schema.Private
		_, err := w.Accounts.UpdateProfile(w.Ctx, users[1], account.Profile{DefaultVisibility: &followers})
		require.NoError(w, err)
		then, before := time.Date(2009, 5, 4, 3, 2, 1, 0, time.UTC), ids.Earliest.Add(-time.Second)
		old := &then
		list := []bulk.Post{
			{ExternalID: "p1", Author: "ann", Text: " one\r\n", CreatedAt: old},
			{ExternalID: "p2", Author: "ann", Text: "two", CreatedAt: old, Visibility: &private},
			{ExternalID: "p3", Author: "bob", Text: "three", CreatedAt: ago(time.Hour)},
			{ExternalID: "p4", Author: "bob", Text: "four"},
			{ExternalID: "p5", Author: "eve", Text: "five"},
			{ExternalID: "p1", Author: "ann", Text: "one"},
			{ExternalID: "p6", Author: "ann", Text: " "},
			{ExternalID: "", Author: "ann", Text: "seven"},
			{ExternalID: "p8", Author: "ann", Text: "eight", CreatedAt: &before},
			{ExternalID: "p9", Author: "ann", Text: "nine", CreatedAt: ago(-time.Hour)},
		}
		results, err := w.Bulk.Posts(w.Ctx, app, list)
		require.NoError(w, err)
		refusals := " NOT_FOUND" + strings.Repeat(" BAD_USER_INPUT", 5)
		require.Equal(w, "CREATED CREATED CREATED CREATED"+refusals, statuses(results))
		again, err := w.Bulk.Posts(w.Ctx, app, list)
		require.NoError(w, err)
		require.Equal(w, "UNCHANGED UNCHANGED UNCHANGED UNCHANGED"+refusals, statuses(again))
		require.Equal(w, results[0].Post, again[0].Post)
		for i, want := range []string{"one", "two", "three", "four"} {
			p := w.Stores.DB.Post.GetX(w.Ctx, results[i].Post)
			require.Equal(w, want, p.Text)
			at := time.Now()
			if list[i].CreatedAt != nil {
				at = *list[i].CreatedAt
				require.WithinDuration(w, at, ids.TimeOf(p.ID), 0)
			}
			require.WithinDuration(w, at, ids.TimeOf(p.ID), time.Minute)
		}
		list[0].Text, list[1].Author, list[2].Visibility = "changed", "bob", &private
		results, err = w.Bulk.Posts(w.Ctx, app, list[:4])
		require.NoError(w, err)
		require.Equal(w, "CONFLICT CONFLICT CONFLICT UNCHANGED", statuses(results))
		ann, bob := w.Stores.DB.User.GetX(w.Ctx, users[0].ID), w.Stores.DB.User.GetX(w.Ctx, users[1].ID)
		require.Equal(w, []int{2, 1, 0, 2, 0, 2}, []int{ann.PostCount, ann.PublicPostCount, ann.FollowersPostCount, bob.PostCount, bob.PublicPostCount, bob.FollowersPostCount})
		require.Equal(w, []int64{max(again[0].Post, again[1].Post), again[3].Post}, []int64{ann.LastPostID, bob.LastPostID})

		require.NoError(w, w.Feed.DeletePost(w.Ctx, users[0], again[0].Post))
		require.Equal(w, 3, w.Stores.DB.ExternalPost.Query().CountX(w.Ctx))
	})
}

// Posts of one moment get different ids, also beside existing posts.
func TestPostsOfOneMoment(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := upsertUsers(w, app, "ann")[0]
		at := ago(time.Hour)
		base := ids.At(*at)
		var there []*ent.PostCreate
		for i := range int64(1000) { // every third id
			there = append(there, w.Stores.DB.Post.Create().SetID(base+3*i).SetAuthorID(ann.ID).SetText("x").SetVisibility(schema.Public))
		}
		w.Stores.DB.Post.CreateBulk(there...).ExecX(w.Ctx)
		var list []bulk.Post
		for i := range 1500 {
			list = append(list, bulk.Post{ExternalID: fmt.Sprint(i), Author: "ann", Text: "y", CreatedAt: at})
		}
		posts := upsertPosts(w, list...)
		for _, id := range posts {
			require.WithinDuration(w, *at, ids.TimeOf(id), 0)
		}
		slices.Sort(posts)
		require.Len(w, slices.Compact(posts), 1500)

		// When a moment is full, further posts get a slightly later time, and are still created
		// only once.
		list = []bulk.Post{{ExternalID: "another moment", Author: "ann", Text: "z", CreatedAt: ago(2 * time.Hour)}}
		for i := range 1700 {
			list = append(list, bulk.Post{ExternalID: fmt.Sprint("more", i), Author: "ann", Text: "z", CreatedAt: at})
		}
		results, err := w.Bulk.Posts(w.Ctx, app, list)
		require.NoError(w, err)
		made := 0
		for _, r := range results[1:] {
			require.Equal(w, bulk.Created, r.Status)
			require.WithinRange(w, ids.TimeOf(r.Post), *at, at.Add(4097*time.Millisecond))
			if ids.TimeOf(r.Post).Equal(ids.TimeOf(base)) {
				made++
			}
		}
		require.Equal(w, ids.PerStep-2500, made)
		require.WithinDuration(w, *list[0].CreatedAt, ids.TimeOf(results[0].Post), 0)
		again, err := w.Bulk.Posts(w.Ctx, app, list)
		require.NoError(w, err)
		for i, r := range again {
			require.Equal(w, bulk.Result{Status: bulk.Unchanged, Post: results[i].Post}, *r)
		}
	})
}

// Only rows with a malformed time, or a time in the future, are refused.
func TestTimesOfRows(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		upsertUsers(w, app, "ann")
		for written, want := range map[string]string{
			"2019-05-01T12:00:00Z":               "2019-05-01T12:00:00Z",
			"2019-05-01t12:00:00z":               "2019-05-01T12:00:00Z",
			"2019-05-01T12:00:00.123456789Z":     "2019-05-01T12:00:00.123456789Z",
			"2019-05-01T12:00:00+0000":           "2019-05-01T12:00:00Z",
			"2019-05-01T12:00:00+0130":           "2019-05-01T10:30:00Z",
			"2019-05-01T12:00:00-08:00":          "2019-05-01T20:00:00Z",
			"2019-05-01T12:00:00":                "",
			"2019-05-01":                         "",
			"2019-05-01T12:00Z":                  "",
			"2019-05-01 12:00:00":                "",
			"2019-02-30T12:00:00Z":               "",
			"2019-05-01T24:00:00Z":               "",
			"2019-05-01T12:00:00+24:00":          "",
			"2019-05-01T1:00:00Z":                "",
			"2019-05-01T12:00:00,5Z":             "",
			"0000-01-01T00:00:00Z":               "",
			"9999-12-31T23:59:59-01:00":          "",
			"":                                   "",
			"yesterday":                          "",
			"1556712000":                         "",
			"2019-05-01T12:00:00Z\n":             "",
			strings.Repeat("9", 1000) + "-01-01": "",
		} {
			got, err := bulk.ParseTime(written)
			if want == "" {
				require.Equal(w, refusal.BadInput, refusal.CodeOf(err), written)
			} else {
				require.NoError(w, err, written)
				require.Equal(w, want, got.UTC().Format(time.RFC3339Nano), written)
			}
		}
		future := time.Now().Add(time.Hour)
		text := func(s string) *string { return &s }
		users, err := w.Bulk.Users(w.Ctx, app, []bulk.User{{ExternalID: "a", CreatedAtText: text("2019-05-01T12:00:00")}, {ExternalID: "b", CreatedAt: &future},
			{ExternalID: "c", CreatedAtText: text("2019-05-01t12:00:00+0100")}, {ExternalID: "d", CreatedAtText: text("")}})
		require.NoError(w, err)
		require.Equal(w, "BAD_USER_INPUT BAD_USER_INPUT CREATED BAD_USER_INPUT", statuses(users))
		require.Equal(w, "2019-05-01T11:00:00Z", w.Stores.DB.User.GetX(w.Ctx, users[2].User).CreatedAt.UTC().Format(time.RFC3339))
		posts, err := w.Bulk.Posts(w.Ctx, app, []bulk.Post{{ExternalID: "a", Author: "ann", Text: "x", CreatedAtText: text("then")},
			{ExternalID: "b", Author: "ann", Text: "x", CreatedAtText: text(future.Format(time.RFC3339))}, {ExternalID: "c", Author: "ann", Text: "x", CreatedAtText: text("2019-05-01T12:00:00z")}})
		require.NoError(w, err)
		require.Equal(w, "BAD_USER_INPUT BAD_USER_INPUT CREATED", statuses(posts))
		for i, reason := range []refusal.Reason{refusal.NotATime, refusal.InTheFuture} {
			for _, r := range []*bulk.Result{users[i], posts[i]} {
				var refused *refusal.Error
				require.ErrorAs(w, r.Err, &refused)
				require.Equal(w, []any{reason, "createdAt"}, []any{refused.Reason, refused.Field})
			}
		}
	})
}

// Young posts are pushed like posts that are written here: no feed is dropped, neither that of a follower
// nor the author's own, and the author's next read has them. If an author also has old posts, feeds are
// dropped.
func TestYoungPostsDropNoFeeds(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob")
		ann, bob := users[0], users[1]
		w.Follow(ann, bob)
		w.Drain()
		w.AwaitInbox(ann)
		w.AwaitInbox(bob)
		feeds := []timeline.Key{timeline.Inbox(ann.ID), timeline.Inbox(bob.ID)}
		epochs := func() (list []int64) {
			for _, k := range feeds {
				_, covered, err := w.Timelines.Feeds.Page(w.Ctx, k, timeline.Range{Limit: 10})
				require.NoError(w, err)
				list = append(list, covered.Epoch)
			}
			return list
		}
		before := epochs()
		young := upsertPosts(w,
			bulk.Post{ExternalID: "now", Author: "bob", Text: "now"},
			bulk.Post{ExternalID: "just now", Author: "bob", Text: "just now", CreatedAt: ago(time.Minute)})
		require.Equal(w, before, epochs())
		require.Equal(w, reversed(young), w.Timeline(bob, 5), "the author's own next read has them")
		w.Drain()
		require.Equal(w, before, epochs())
		for _, k := range feeds {
			ids, covered, err := w.Timelines.Feeds.Page(w.Ctx, k, timeline.Range{Limit: 10})
			require.NoError(w, err)
			require.Equal(w, timeline.Ready, covered.State)
			require.Equal(w, reversed(young), ids, "pushed")
		}

		old := upsertPosts(w, bulk.Post{ExternalID: "then", Author: "bob", Text: "then", CreatedAt: ago(24 * time.Hour)},
			bulk.Post{ExternalID: "and now", Author: "bob", Text: "and now"})
		w.Drain()
		require.Equal(w, []int64{old[1], young[1], young[0], old[0]}, w.Timeline(ann, 5))
		w.AwaitInbox(ann)
		require.NotEqual(w, before[0], epochs()[0])
	})
}

// Backdated posts take their places in existing timelines, for pushed and merged authors and for
// everybody who may see them. Nobody is notified, a reader with a cursor neither loses nor repeats
// a post, and read posts stay read.
func TestBackdatedPostsAreInTheirPlaces(t *testing.T) {
	t.Parallel()
	for name, pullAbove := range map[string]int{"pushed": home.NeverPull, "merged": home.AlwaysPull} {
		t.Run(name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				w := feedtest.Idle(t, s, feedtest.Options{Policy: home.Policy{PullAbove: pullAbove}})
				w.Work()
				backdate(w)
			})
		})
	}
}

func backdate(w *feedtest.World) {
	users := upsertUsers(w, app, "ann", "bob", "cat")
	ann, bob, cat := users[0], users[1], users[2]
	w.Follow(ann, bob)
	day := 24 * time.Hour
	var list []bulk.Post
	for i := range 6 {
		list = append(list, bulk.Post{ExternalID: fmt.Sprint("first", i), Author: "bob", Text: "x", CreatedAt: ago(time.Duration(11-2*i) * day)})
	}
	first := upsertPosts(w, list...)
	own := w.Post(bob, schema.Public)
	w.Drain()
	for _, v := range users {
		w.AwaitInbox(v)
	}
	want := append([]int64{own}, reversed(first[1:])...)
	want = append(want, first[0])
	require.Equal(w, want, w.Timeline(ann, 20))
	three := 3
	top, err := w.Home.Timeline(w.Ctx, ann, paging.Page{First: &three}, "LATEST")
	require.NoError(w, err)
	_, err = w.Home.Unread.MarkRead(w.Ctx, ann, top.Edges[0].Cursor)
	require.NoError(w, err)
	events, err := w.Streams.Listen(w.Ctx, ann, stream.Options{}, func() {})
	require.NoError(w, err)

	friends, private := schema.Mutuals, schema.Private
	second := upsertPosts(w,
		bulk.Post{ExternalID: "a", Author: "bob", Text: "y", CreatedAt: ago(10 * day)},
		bulk.Post{ExternalID: "b", Author: "bob", Text: "y", CreatedAt: ago(4 * day)},
		bulk.Post{ExternalID: "c", Author: "bob", Text: "y", CreatedAt: ago(3 * day), Visibility: &friends},
		bulk.Post{ExternalID: "d", Author: "bob", Text: "y", CreatedAt: ago(20 * day), Visibility: &private},
		bulk.Post{ExternalID: "e", Author: "cat", Text: "y", CreatedAt: ago(7 * day)},
	)
	all := slices.Concat([]int64{own}, first, second)
	slices.SortFunc(all, func(a, b int64) int { return int(b - a) })
	of := func(without ...int64) []int64 {
		return slices.DeleteFunc(slices.Clone(all), func(id int64) bool { return slices.Contains(without, id) })
	}
	require.Equal(w, of(second[4]), w.Timeline(bob, 20), "the author's own next read has them")
	w.Drain()
	visible := of(second[2], second[3], second[4])
	require.Equal(w, visible, w.Timeline(ann, 20))
	require.Equal(w, []int64{second[4]}, w.Timeline(cat, 20))
	w.AwaitInbox(ann)
	require.Equal(w, visible, w.Walk(ann, 2, nil))
	rest, err := w.Home.Timeline(w.Ctx, ann, paging.Page{After: &top.Edges[2].Cursor}, "LATEST")
	require.NoError(w, err)
	require.Equal(w, visible[slices.Index(visible, feedtest.PostIDs(top)[2])+1:], feedtest.PostIDs(rest))
	unread, err := w.Home.Unread.Count(w.Ctx, ann)
	require.NoError(w, err)
	require.Zero(w, unread)
	told := w.Post(bob, schema.Public)
	require.Eventually(w, func() bool {
		event, ok := events.Next(w.Ctx)
		if ok {
			require.IsType(w, &stream.PostAdded{}, event)
			require.Equal(w, told, event.(*stream.PostAdded).Edge.Node.ID, "the first of which anybody is told")
		}
		return ok
	}, time.Minute, time.Millisecond)
	w.Drain()
	require.Equal(w, 2, w.Stores.DB.Delivery.Query().CountX(w.Ctx), "receipts of those that were posted alone")
}

func reversed(list []int64) []int64 {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func TestLikes(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob")
		posts := upsertPosts(w, bulk.Post{ExternalID: "p", Author: "ann", Text: "x", CreatedAt: ago(time.Hour)}, bulk.Post{ExternalID: "q", Author: "ann", Text: "x", CreatedAt: ago(time.Hour)})
		_, err := w.Feed.LikePost(w.Ctx, users[0], posts[0])
		require.NoError(w, err)
		list := []bulk.Like{{"ann", "p"}, {"bob", "p"}, {"bob", "p"}, {"bob", "q"}, {"eve", "p"}, {"bob", "r"}}
		for _, want := range []string{"UNCHANGED CREATED UNCHANGED CREATED NOT_FOUND NOT_FOUND", "UNCHANGED UNCHANGED UNCHANGED UNCHANGED NOT_FOUND NOT_FOUND"} {
			results, err := w.Bulk.Likes(w.Ctx, app, list)
			require.NoError(w, err)
			require.Equal(w, want, statuses(results))
			require.Equal(w, 2, w.Stores.DB.Post.GetX(w.Ctx, posts[0]).LikeCount)
			require.Equal(w, 1, w.Stores.DB.Post.GetX(w.Ctx, posts[1]).LikeCount)
			require.Equal(w, 3, w.Stores.DB.Like.Query().CountX(w.Ctx))
		}
	})
}

// Posts of another server are found by their tags.
func TestPostsWithTags(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := upsertUsers(w, app, "ann")[0]
		list := []bulk.Post{
			{ExternalID: "p1", Author: "ann", Text: "#Tide, #tide #潮水", CreatedAt: ago(2 * time.Hour)},
			{ExternalID: "p2", Author: "ann", Text: "tide", CreatedAt: ago(time.Hour)},
			{ExternalID: "p3", Author: "ann", Text: "#tide"},
		}
		posts := upsertPosts(w, list...)
		require.Equal(w, posts, upsertPosts(w, list...))
		for tag, want := range map[string][]int64{"tide": {posts[2], posts[0]}, "潮水": {posts[0]}} {
			page, err := w.Feed.TaggedPosts(w.Ctx, ann, tag, paging.Page{})
			require.NoError(w, err)
			require.Equal(w, want, feedtest.PostIDs(page), tag)
		}
	})
}
