package account_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.User("ann")
		number := strconv.FormatInt(ann.ID, 10)
		digits := w.User(number) // a handle that looks like the number of another user
		for name, want := range map[string]int64{
			"ann": ann.ID, "@Ann": ann.ID, number: ann.ID, ent.NodeID("User", ann.ID): ann.ID, "@" + number: digits.ID,
			"nobody": 0, "-1": 0, "": 0, ent.NodeID("Post", ann.ID): 0,
		} {
			u, err := w.Directory.Named(w.Ctx, name)
			if want == 0 {
				require.Equal(w, refusal.NotFound, refusal.CodeOf(err), name)
				continue
			}
			require.NoError(w, err, name)
			require.Equal(w, want, u.ID, name)
		}

		_, err := w.Sessions.Suspend(w.Ctx, ann.ID, func(*ent.Tx, *ent.User) error { return nil })
		require.NoError(w, err)
		_, err = w.Directory.Named(w.Ctx, "ann")
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
		u, err := w.Sessions.Named(w.Ctx, "ann")
		require.NoError(w, err)
		require.Equal(w, ann.ID, u.ID)
	})
}
