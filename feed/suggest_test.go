package feed_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// suggested returns the handles of the first n suggestions for the viewer.
func (w *world) suggested(v session.Viewer, n int) []string {
	w.Helper()
	users, err := w.Feed.Suggestions(w.Ctx, v, &n)
	require.NoError(w, err)
	handles := []string{}
	for _, u := range users {
		handles = append(handles, u.Handle)
	}
	return handles
}

// Users followed by the most followees come first, then users with the most followers, then the
// newest. Users who are known to the viewer already, who block the viewer, or who are hidden are
// left out.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := map[string]session.Viewer{}
		handles := []string{"old", "liked", "once", "twice", "viewer", "friend1", "friend2", "gone", "blocked", "blocker", "muted", "asked", "suspended", "leaving", "followed", "newest"}
		for _, handle := range handles {
			u[handle] = w.User(handle)
		}
		viewer := u["viewer"]
		for _, pair := range [][2]string{
			{"viewer", "friend1"}, {"viewer", "friend2"}, {"viewer", "gone"}, {"viewer", "followed"}, {"friend1", "viewer"},
			{"friend1", "once"}, {"friend1", "twice"}, {"friend2", "twice"}, {"gone", "old"}, {"muted", "liked"},
		} {
			w.Follow(u[pair[0]], u[pair[1]])
		}
		for _, handle := range []string{"blocked", "blocker", "muted", "asked", "suspended", "leaving", "followed"} {
			w.Follow(u["friend1"], u[handle])
			w.Follow(u["friend2"], u[handle])
		}
		require.Equal(t, []string{"leaving", "suspended", "asked", "muted", "blocker", "blocked", "twice", "once", "old"}, w.suggested(viewer, 9), "before anything happens")

		do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		yes := true
		do(w.Feed.Block(w.Ctx, viewer, u["blocked"].ID))
		do(w.Feed.Block(w.Ctx, u["blocker"], viewer.ID))
		do(w.Feed.Mute(w.Ctx, viewer, u["muted"].ID))
		do(w.Accounts.UpdateProfile(w.Ctx, u["asked"], account.Profile{ApprovesFollowers: &yes}))
		do(w.Feed.Follow(w.Ctx, viewer, u["asked"].ID))
		for _, handle := range []string{"suspended", "gone"} {
			do(w.Moderation.Suspend(w.Ctx, moderation.Console, u[handle].ID, "", account.Suspension{}))
		}

		_, _, err := w.Accounts.Delete(w.Ctx, u["leaving"].ID, feedtest.Grace)
		require.NoError(t, err)
		require.Equal(t, []string{"twice", "once"}, w.suggested(viewer, 2))
		require.Equal(t, []string{"twice", "once", "liked", "old", "newest"}, w.suggested(viewer, 6), "whom a suspended followee follows is like any other")
		do(w.Feed.Follow(w.Ctx, viewer, u["twice"].ID))
		require.Equal(t, []string{"once"}, w.suggested(viewer, 1))
		do(w.Feed.Unmute(w.Ctx, viewer, u["muted"].ID))
		require.Equal(t, []string{"muted"}, w.suggested(viewer, 1))
		require.Equal(t, []string{"followed", "twice", "asked"}, w.suggested(w.User("lonely"), 3), "without followees")

		for _, n := range []int{0, 101} {
			_, err := w.Feed.Suggestions(w.Ctx, viewer, &n)
			require.Equal(t, refusal.BadInput, refusal.CodeOf(err))
		}
		_, err = w.Feed.Suggestions(w.Ctx, session.Viewer{}, nil)
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
	})
}

// The search is limited to the newest follows. Followees that all friends follow, too, do not
// displace other candidates. A user with very many followers is suggested at any age.
func TestSuggestionsOfMany(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{})
		star, far, deep, near, viewer := w.User("star"), w.User("far"), w.User("deep"), w.User("near"), w.User("viewer")
		require.NoError(t, s.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).SetFollowerCount(900).Exec(w.Ctx))
		const friends, others = 130, 300
		var users []*ent.UserCreate
		for i := range int64(friends + others) {
			users = append(users, s.DB.User.Create().SetID(viewer.ID+1+i).SetHandle(fmt.Sprint("u", i)).SetPasswordHash("-"))
		}
		require.NoError(t, s.DB.User.CreateBulk(users...).Exec(w.Ctx))
		for i := range int64(friends) {
			friend := viewer.ID + 1 + i
			follows := []*ent.FollowCreate{s.DB.Follow.Create().SetFollowerID(viewer.ID).SetFolloweeID(friend)}
			follow := func(whom int64) {
				follows = append(follows, s.DB.Follow.Create().SetFollowerID(friend).SetFolloweeID(whom))
			}
			follow(deep.ID)
			for k := range int64(110) {
				follow(viewer.ID + 1 + (i+k+1)%friends)
			}
			if i < friends-50 {
				follow(far.ID)
			} else if i%10 == 0 {
				follow(near.ID)
			}
			require.NoError(t, s.DB.Follow.CreateBulk(follows...).Exec(w.Ctx))
		}
		got := w.suggested(viewer, 100)
		require.Len(t, got, 100)
		require.Equal(t, []string{"near", "star", "u429"}, got[:3])
		require.NotContains(t, got, "far", "it is the newest followees whom it looks at")
		require.NotContains(t, got, "deep", "and their newest followees")
		require.Equal(t, "star", w.suggested(w.User("lonely"), 1)[0])
	})
}
