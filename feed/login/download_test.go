package login_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/feedtest"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// What ends between the check of the viewer and the offer of an export ends the offer, too.
func TestExportIsNotOfferedTooLate(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		offer := func(v session.Viewer, password string) (secret string, err error) {
			path, _, err := w.Login.OfferExport(w.Ctx, v, password)
			return strings.TrimPrefix(path, login.ExportPath+"?secret="), err
		}
		ann, bob := w.SignUp("ann", "correct horse"), w.SignIn(feedtest.TokenOf(t, "app", "bob", time.Now(), nil))
		byKey := session.Viewer{ID: bob.ID, Session: -1, Key: &apikey.Key{ID: 1}}

		requireReason(w, refusal.PasswordChanged, w.Login.OfferConfirmed(w.Ctx, ann, "the hash of a former password"))
		require.NoError(t, w.Sessions.LogOut(w.Ctx, ann))
		_, err := offer(ann, "correct horse")
		requireReason(w, refusal.SessionEnded, err)
		_, err = w.Sessions.SignOut(w.Ctx, bob.ID)
		require.NoError(t, err)
		_, err = offer(bob, "")
		requireReason(w, refusal.SessionEnded, err)

		secret, err := offer(byKey, "")
		require.NoError(t, err)
		_, err = w.Login.FindExport(w.Ctx, secret)
		require.NoError(t, err)
		w.Stores.DB.User.UpdateOneID(bob.ID).SetHidden(true).ExecX(w.Ctx) // only hidden: the session of the offer is left
		_, err = w.Login.FindExport(w.Ctx, secret)
		requireReason(w, refusal.DownloadEnded, err)
		w.Stores.DB.User.UpdateOneID(bob.ID).SetHidden(false).ExecX(w.Ctx)
		_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "", account.Suspension{})
		require.NoError(t, err)
		_, err = offer(byKey, "")
		requireReason(w, refusal.SignIn, err)
	})
}
