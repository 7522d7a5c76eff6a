package account_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.User("ann")
		bob := w.User("bob")
		number, free := strconv.FormatInt(ann.ID, 10), "7301928374651"
		digits, alone := w.User(number), w.User(free) // handles that look like numbers; the first is the number of another user
		for name, want := range map[string]int64{
			"ann": ann.ID, "@Ann": ann.ID, ent.NodeID("User", ann.ID): ann.ID, "@" + number: digits.ID,
			strconv.FormatInt(bob.ID, 10): bob.ID, free: alone.ID,
			"nobody": 0, "-1": 0, "": 0, "@": 0, ent.NodeID("Post", ann.ID): 0,
		} {
			u, err := w.Directory.Named(w.Ctx, name)
			if want == 0 {
				require.Equal(w, refusal.NotFound, refusal.CodeOf(err), name)
				continue
			}
			require.NoError(w, err, name)
			require.Equal(w, want, u.ID, name)
		}

		w.User(strings.ToLower(ent.NodeID("User", bob.ID)))
		requireAmbiguous := func(name, user, other string) {
			w.Helper()
			for _, named := range []func(context.Context, string) (*ent.User, error){w.Directory.Named, w.Accounts.Named} {
				_, err := named(w.Ctx, name)
				var refused *refusal.Error
				require.ErrorAs(w, err, &refused)
				require.Equal(w, refusal.AmbiguousUser, refused.Reason)
				require.Contains(w, err.Error(), "@"+user+" or @"+other)
			}
		}
		requireAmbiguous(number, "ann", number)
		requireAmbiguous(ent.NodeID("User", bob.ID), "bob", strings.ToLower(ent.NodeID("User", bob.ID)))

		_, err := w.Accounts.Suspend(w.Ctx, ann.ID, account.Suspension{}, func(*ent.Tx, *ent.User) error { return nil })
		require.NoError(w, err)
		_, err = w.Directory.Named(w.Ctx, "ann")
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
		u, err := w.Accounts.Named(w.Ctx, "ann")
		require.NoError(w, err)
		require.Equal(w, ann.ID, u.ID)
		requireAmbiguous(number, "ann", number)
	})
}
