package bulk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/ent/userdata"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/timeline"
)

const app = "https://app.example.com"

// statuses returns the results in a form that is easy to compare: each status, or the code of the
// refusal.
func statuses(results []*bulk.Result) string {
	var list []string
	for _, r := range results {
		if r.Status == bulk.Refused {
			list = append(list, *r.Code())
		} else {
			list = append(list, string(r.Status))
		}
	}
	return strings.Join(list, " ")
}

func upsertUsers(w *feedtest.World, issuer string, ids ...string) []session.Viewer {
	w.Helper()
	list := make([]bulk.User, len(ids))
	for i, id := range ids {
		list[i] = bulk.User{ExternalID: id}
	}
	results, err := w.Bulk.Users(w.Ctx, issuer, list)
	require.NoError(w, err)
	viewers := make([]session.Viewer, len(ids))
	for i, r := range results {
		require.NotZero(w, r.User)
		viewers[i].ID = r.User
	}
	return viewers
}

func text(s string) *string { return &s }

func TestUsers(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		w.User("taken")
		long := time.Date(2011, 2, 3, 4, 5, 6, 0, time.UTC)
		list := []bulk.User{
			{ExternalID: "1", Handle: text("@Ann"), Name: text("Ann A."), Bio: text(" likes\r\ntea "), CreatedAt: &long},
			{ExternalID: "2", Handle: text("taken")},
			{ExternalID: "3", Handle: text("ann")},
			{ExternalID: ""},
			{ExternalID: strings.Repeat("x", 256)},
			{ExternalID: "4", Name: text("two\nlines")},
			{ExternalID: "5", Bio: text(strings.Repeat("b", 501))},
			{ExternalID: "1", Name: text("again")},
			{ExternalID: "a\x00'; --", Name: text("安")},
		}
		results, err := w.Bulk.Users(w.Ctx, app, list)
		require.NoError(w, err)
		const bad = " BAD_USER_INPUT"
		require.Equal(w, "CREATED CREATED CREATED"+strings.Repeat(bad, 5)+" CREATED", statuses(results))
		require.Equal(w, []string{"TOO_LONG", "TOO_LONG", "NOT_ONE_LINE", "TOO_LONG"}, []string{*results[3].Reason(), *results[4].Reason(), *results[5].Reason(), *results[6].Reason()})
		require.NotEmpty(w, *results[3].Message())
		require.Nil(w, results[0].Reason())
		ann := w.Stores.DB.User.GetX(w.Ctx, results[0].User)
		require.Equal(w, []any{"ann", "Ann A.", "likes\ntea", "-", app}, []any{ann.Handle, ann.Name, ann.Bio, ann.PasswordHash, *ann.Issuer})
		require.WithinDuration(w, long, ann.CreatedAt, 0)
		require.Regexp(w, "^taken_[a-z2-7]{4}$", w.Stores.DB.User.GetX(w.Ctx, results[1].User).Handle)
		require.Regexp(w, "^ann_[a-z2-7]{4}$", w.Stores.DB.User.GetX(w.Ctx, results[2].User).Handle)

		list[0].Name, list[0].Bio, list[0].Handle = text("Ann B."), nil, text("other")
		list[1].CreatedAt = &long
		again, err := w.Bulk.Users(w.Ctx, app, list)
		require.NoError(w, err)
		require.Equal(w, "UPDATED UNCHANGED UNCHANGED"+strings.Repeat(bad, 5)+" UNCHANGED", statuses(again))
		require.Equal(w, results[8].User, again[8].User)
		changed := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		require.Equal(w, []string{"ann", "Ann B.", "likes\ntea"}, []string{changed.Handle, changed.Name, changed.Bio})
		require.NotEqual(w, ann.ID, upsertUsers(w, "elsewhere", "1")[0].ID)

		// All fields of a profile are kept, changed and removed. A picture may be on any host.
		own := bulk.User{ExternalID: "1", AvatarURL: text("https://any.example/a"), Links: []string{"https://a.example", "http://b.example"}, Data: text(` {"b":1, "a":2.0} `)}
		fresh := own
		fresh.ExternalID = "own"
		for _, want := range []string{"UPDATED CREATED", "UNCHANGED UNCHANGED"} {
			results, err = w.Bulk.Users(w.Ctx, app, []bulk.User{own, fresh})
			require.NoError(w, err)
			require.Equal(w, want, statuses(results))
			for _, r := range results {
				u := w.Stores.DB.User.GetX(w.Ctx, r.User)
				require.Equal(w, []string{"https://any.example/a", "https://a.example\nhttp://b.example"}, []string{u.AvatarURL, u.Links})
				require.Equal(w, `{"a":2,"b":1}`, w.Stores.DB.UserData.Query().Where(userdata.UserID(r.User)).OnlyX(w.Ctx).Data)
			}
		}
		results, err = w.Bulk.Users(w.Ctx, app, []bulk.User{{ExternalID: "1", AvatarURL: text(""), Links: []string{}, Data: text("{}")}, {ExternalID: "own"},
			{ExternalID: "2", AvatarURL: text("javascript:x")}, {ExternalID: "3", Data: text("[]")}})
		require.NoError(w, err)
		require.Equal(w, "UPDATED UNCHANGED"+bad+bad, statuses(results))
		none := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		require.Equal(w, []string{"", ""}, []string{none.AvatarURL, none.Links})
		require.Equal(w, 1, w.Stores.DB.UserData.Query().CountX(w.Ctx))

		_, err = w.Bulk.Users(w.Ctx, app, make([]bulk.User, bulk.MaxRows+1))
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err))
		many := make([]string, bulk.MaxRows)
		for i := range many {
			many[i] = fmt.Sprint("many", i)
		}
		require.Equal(w, upsertUsers(w, app, many...), upsertUsers(w, app, many...))
	})
}

// checkCounters compares the follow counters of all users with the follows.
func checkCounters(w *feedtest.World) {
	w.Helper()
	followers, following := map[int64]int{}, map[int64]int{}
	for _, f := range w.Stores.DB.Follow.Query().AllX(w.Ctx) {
		followers[f.FolloweeID]++
		following[f.FollowerID]++
	}
	for _, u := range w.Stores.DB.User.Query().AllX(w.Ctx) {
		require.Equal(w, followers[u.ID], u.FollowerCount)
		require.Equal(w, following[u.ID], u.FollowingCount)
	}
}

// When the call returns, existing timelines show the posts of followees, and no posts across a
// block.
func TestFollowsAndBlocks(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob", "cat", "dan")
		ann, bob, cat, dan := users[0], users[1], users[2], users[3]
		private := true
		_, err := w.Accounts.UpdateProfile(w.Ctx, bob, account.Profile{ApprovesFollowers: &private})
		require.NoError(w, err)
		w.Follow(ann, bob) // becomes a request
		w.Follow(ann, dan)
		public, friends, ofDan := w.Post(bob, schema.Public), w.Post(bob, schema.Mutuals), w.Post(dan, schema.Public)
		w.Drain()
		for _, v := range users {
			w.AwaitInbox(v)
		}
		require.Equal(w, []int64{ofDan}, w.Timeline(ann, 10))

		follows := []bulk.Follow{{"ann", "bob"}, {"ann", "dan"}, {"ann", "ann"}, {"ann", "eve"}, {"ann", "bob"}, {"cat", "bob"}}
		results, err := w.Bulk.Follows(w.Ctx, app, follows)
		require.NoError(w, err)
		require.Equal(w, "CREATED UNCHANGED BAD_USER_INPUT NOT_FOUND UNCHANGED CREATED", statuses(results))
		require.Equal(w, []int64{ofDan, public}, w.Timeline(ann, 10))
		require.Zero(w, w.Stores.DB.FollowRequest.Query().CountX(w.Ctx))
		checkCounters(w)
		_, err = w.Bulk.Follows(w.Ctx, app, []bulk.Follow{{"bob", "ann"}})
		require.NoError(w, err)
		require.Equal(w, []int64{ofDan, friends, public}, w.Timeline(ann, 10))
		w.Drain()
		require.Equal(w, []int64{ofDan, friends, public}, w.Timeline(ann, 10))
		results, err = w.Bulk.Follows(w.Ctx, "elsewhere", follows)
		require.NoError(w, err)
		require.Equal(w, strings.TrimSpace(strings.Repeat("NOT_FOUND ", 6)), statuses(results))

		w.AwaitInbox(ann)
		blocks := []bulk.Block{{"bob", "ann"}, {"bob", "ann"}, {"bob", "bob"}, {"eve", "ann"}, {"cat", "dan"}}
		results, err = w.Bulk.Blocks(w.Ctx, app, blocks)
		require.NoError(w, err)
		require.Equal(w, "CREATED UNCHANGED BAD_USER_INPUT NOT_FOUND CREATED", statuses(results))
		require.Equal(w, []int64{ofDan}, w.Timeline(ann, 10))
		checkCounters(w)
		results, err = w.Bulk.Blocks(w.Ctx, app, blocks)
		require.NoError(w, err)
		require.Equal(w, "UNCHANGED UNCHANGED BAD_USER_INPUT NOT_FOUND UNCHANGED", statuses(results))
		results, err = w.Bulk.Follows(w.Ctx, app, []bulk.Follow{{"ann", "bob"}, {"dan", "cat"}, {"cat", "bob"}})
		require.NoError(w, err)
		require.Equal(w, "FORBIDDEN FORBIDDEN UNCHANGED", statuses(results))
		w.Drain()
		require.Equal(w, []int64{ofDan}, w.Timeline(ann, 10))
		_ = cat
	})
}

// Two processes send the same rows at the same time in any order, and each row is created once.
func TestRowsAtOnce(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		other := feedtest.New(w.TB, w.Stores, feedtest.Options{})
		const n = 60
		var users []bulk.User
		var follows []bulk.Follow
		for i := range n {
			users = append(users, bulk.User{ExternalID: fmt.Sprint(i), Handle: text("same")})
			follows = append(follows, bulk.Follow{Follower: fmt.Sprint(i), Followee: fmt.Sprint((i + 1) % n)}, bulk.Follow{Follower: "0", Followee: fmt.Sprint(i)})
		}
		var mu sync.Mutex
		made := map[string]int{}
		var all sync.WaitGroup
		together := func(call func(b *bulk.Bulk, shuffle func(n int, swap func(i, j int))) ([]*bulk.Result, error)) {
			clear(made)
			for i := range 6 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(i)))
					results, err := call([]*feedtest.World{w, other}[i%2].Bulk, random.Shuffle)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, r := range results {
						made[string(r.Status)]++
					}
				})
			}
			all.Wait()
		}
		together(func(b *bulk.Bulk, shuffle func(int, func(i, j int))) ([]*bulk.Result, error) {
			list := slices.Clone(users)
			shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return b.Users(w.Ctx, app, list)
		})
		require.Equal(w, map[string]int{"CREATED": n, "UNCHANGED": 5 * n}, made)
		require.Equal(w, n, w.Stores.DB.User.Query().Where(user.Issuer(app)).CountX(w.Ctx))
		together(func(b *bulk.Bulk, shuffle func(int, func(i, j int))) ([]*bulk.Result, error) {
			list := slices.Clone(follows)
			shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return b.Follows(w.Ctx, app, list)
		})
		want := 2*n - 2 // one pair is a user with itself, and 0 follows 1 twice
		require.Equal(w, want, made["CREATED"])
		require.Equal(w, want, w.Stores.DB.Follow.Query().CountX(w.Ctx))
		checkCounters(w)
	})
}

// If a process dies after its commit, a job makes the inboxes be read again.
func TestJobDropsInboxes(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := upsertUsers(w, app, "ann", "bob")
		post := w.History(users[1], 1)[0]
		w.AwaitInbox(users[0])
		_, err := w.Bulk.Follows(w.Ctx, app, []bulk.Follow{{"ann", "bob"}})
		require.NoError(w, err)
		w.AwaitInbox(users[0]) // the call dropped it
		require.Equal(w, 1, w.Stores.DB.Job.Query().CountX(w.Ctx))
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, inboxOf(users[0]), post)) // as if the call had not dropped it
		require.Empty(w, w.Timeline(users[0], 10))
		w.Work()
		w.Drain()
		require.Equal(w, []int64{post}, w.Timeline(users[0], 10))
	})
}

func inboxOf(v session.Viewer) timeline.Key { return timeline.Inbox(v.ID) }
