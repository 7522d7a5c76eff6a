package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
)

// Once a change has returned that hides something from somebody, earlier verdicts are no longer
// valid. An event with such a verdict is checked again before it is sent.
func TestEveryChangeThatHidesRaisesTheVersion(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, cem := w.User("ann"), w.User("bob"), w.User("cem")
		w.Befriend(ann, bob)
		w.Befriend(cem, bob)
		_, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "1"}, {ExternalID: "2"}})
		require.NoError(w, err)
		post := w.Post(ann, schema.Public)
		none := func(*ent.Tx, *ent.User) error { return nil }
		relate := func(change func() (*ent.User, error)) func() error {
			return func() error { _, err := change(); return err }
		}
		for _, change := range []struct {
			what string
			do   func() error
		}{
			{"edit", func() error {
				_, err := w.Feed.UpdatePost(w.Ctx, ann, post, feed.Edit{Text: new("a muted word")})
				return err
			}},
			{"mute a word", func() error { _, _, err := w.Feed.MuteWord(w.Ctx, bob, "muted"); return err }},
			{"mute a conversation", func() error { _, err := w.Feed.MuteConversation(w.Ctx, bob, post); return err }},
			{"narrow", func() error { _, err := w.Feed.SetVisibility(w.Ctx, ann, post, schema.Mutuals); return err }},
			{"hide", func() error {
				_, err := w.Feed.HidePost(w.Ctx, post, true, func(*ent.Tx, int64) error { return nil })
				return err
			}},
			{"mute", relate(func() (*ent.User, error) { return w.Feed.Mute(w.Ctx, ann, bob.ID) })},
			{"remove a follower", relate(func() (*ent.User, error) { return w.Feed.RemoveFollower(w.Ctx, ann, bob.ID) })},
			{"unfollow", relate(func() (*ent.User, error) { return w.Feed.Unfollow(w.Ctx, ann, bob.ID) })},
			{"block", relate(func() (*ent.User, error) { return w.Feed.Block(w.Ctx, ann, bob.ID) })},
			{"delete", func() error { return w.Feed.DeletePost(w.Ctx, ann, post) }},
			{"block by another server", func() error {
				_, err := w.Bulk.Blocks(w.Ctx, "app", []bulk.Block{{Blocker: "1", Blocked: "2"}})
				return err
			}},
			{"suspend", func() error { _, err := w.Accounts.Suspend(w.Ctx, ann.ID, account.Suspension{}, none); return err }},
			{"suspend by a file", func() error {
				_, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "1", Suspended: true}})
				return err
			}},
			{"delete an account", func() error { _, _, err := w.Accounts.Delete(w.Ctx, bob.ID, feedtest.Grace); return err }},
			{"delete an account at once", func() error { _, _, err := w.Accounts.Delete(w.Ctx, cem.ID, 0); return err }},
			{"delete by another server", func() error { _, err := w.Accounts.DeleteExternal(w.Ctx, "app", "2"); return err }},
		} {
			before := w.Visibility.Version()
			require.NoError(w, change.do(), change.what)
			require.Greater(w, w.Visibility.Version(), before, change.what)
		}
	})
}
