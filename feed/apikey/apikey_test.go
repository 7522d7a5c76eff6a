package apikey_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// clock is the clock of a World. It stands still.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// each runs a test on every engine, in a World whose clock the test moves.
func each(t *testing.T, test func(w *feedtest.World, c *clock)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		c := &clock{time.Now()}
		test(feedtest.New(t, s, feedtest.Options{Now: c.now}), c)
	})
}

func create(w *feedtest.World, issuer string, scopes ...apikey.Scope) (*apikey.Key, string) {
	w.Helper()
	key, text, err := w.Keys.Create(w.Ctx, nil, "a backend", issuer, scopes)
	require.NoError(w, err)
	return key, text
}

func TestKeysActForUsers(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, _ *clock) {
		key, text := create(w, "app", apikey.Import, apikey.Read, apikey.Read)
		require.Equal(w, []apikey.Scope{apikey.Read, apikey.Import}, key.Scopes)
		require.Regexp(w, `^tk_[0-9]+_[A-Za-z0-9_-]{43}$`, text)
		require.True(w, strings.HasPrefix(text, key.PublicID()+"_"))
		row := w.Stores.DB.APIKey.GetX(w.Ctx, key.ID)
		require.Len(w, row.SecretHash, 32)
		_, secret, _ := strings.Cut(strings.TrimPrefix(text, apikey.Prefix), "_")
		require.NotContains(w, string(row.SecretHash)+row.Name+row.Scopes, secret)

		v, expires, err := w.Login.Authenticate(w.Ctx, text)
		require.NoError(w, err)
		require.Zero(w, expires)
		require.Zero(w, v.ID)
		require.Equal(w, -key.ID, v.Session)
		asked := storagetest.CountQueries(w.Stores)
		recalled, _, known := w.Login.Recall(text)
		require.True(w, known)
		require.Equal(w, v, recalled)
		_, _, known = w.Login.Recall(text + " external:7")
		require.False(w, known)
		require.Zero(w, asked())
		require.True(w, v.Key.Has(apikey.Import))
		require.False(w, v.Key.Has(apikey.Write))

		own := w.User("own")
		for i, id := range []string{"7", "a b:c%", "a\x00", "ä"} {
			made := w.Stores.DB.User.Create().SetID(own.ID + int64(i) + 1).SetHandle("u" + strings.Repeat("x", i)).SetPasswordHash("-").
				SetIssuer("app").SetExternalID([]byte(id)).SaveX(w.Ctx)
			for range 2 { // the second call finds it remembered
				v, _, err = w.Login.Authenticate(w.Ctx, text+" external:"+url.PathEscape(id))
				require.NoError(w, err)
				require.Equal(w, made.ID, v.ID)
			}
		}
		v, _, err = w.Login.Authenticate(w.Ctx, text+" "+w.Stores.DB.User.GetX(w.Ctx, own.ID).NodeID())
		require.NoError(w, err)
		require.Equal(w, own.ID, v.ID)
		require.Equal(w, refusal.Forbidden, refusal.CodeOf(w.Sessions.LogOut(w.Ctx, v)))

		_, other := create(w, "elsewhere", apikey.Read)
		w.RequireRefused(other + " external:7")
		for _, actAs := range []string{"external:8", "external:", "external:%zz", "own", "VXNlcjox", "7", "external:7 external:7"} {
			w.RequireRefused(text + " " + actAs)
		}
		last := "A"
		if strings.HasSuffix(text, last) {
			last = "Q"
		}
		_, otherSecret, _ := strings.Cut(strings.TrimPrefix(other, apikey.Prefix), "_")
		for _, wrong := range []string{text[:len(text)-1] + last, text[:len(text)-1], text + "A", key.PublicID() + "_" + otherSecret, "tk_999_" + secret, "tk__" + secret, "tk_-1_" + secret, strings.ToUpper(text)} {
			w.RequireRefused(wrong)
		}
		session, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
		require.NoError(w, err)
		w.RequireRefused(session.Token + " external:7")
	})
}

// A revoked key is refused at once here, and at other processes within two seconds. Ended reports
// it to a process that checks its connections.
func TestRevokedKeysAreRefused(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, c *clock) {
		other := feedtest.New(w.TB, w.Stores, feedtest.Options{Now: c.now})
		key, text := create(w, "", apikey.Read)
		kept, _ := create(w, "", apikey.Read)
		for _, process := range []*feedtest.World{w, other} {
			_, _, err := process.Login.Authenticate(w.Ctx, text)
			require.NoError(w, err)
		}
		auth, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
		require.NoError(w, err)
		v, _, err := w.Login.Authenticate(w.Ctx, auth.Token)
		require.NoError(w, err)
		asked := []session.Grant{{Session: -key.ID}, {Session: -kept.ID}, {Session: -99}, v.Grant(), {Session: 99}}
		ended, err := w.Sessions.Ended(w.Ctx, asked)
		require.NoError(w, err)
		require.ElementsMatch(w, []session.Grant{{Session: -99}, {Session: 99}}, ended)

		revoked, err := w.Keys.Revoke(w.Ctx, nil, key.ID)
		require.NoError(w, err)
		require.WithinDuration(w, c.at, *revoked.RevokedAt, time.Millisecond)
		w.RequireRefused(text)
		_, _, err = other.Login.Authenticate(w.Ctx, text)
		require.NoError(w, err, "the other process has not asked yet")
		c.at = c.at.Add(2*time.Second + time.Millisecond)
		other.RequireRefused(text)
		ended, err = w.Sessions.Ended(w.Ctx, asked)
		require.NoError(w, err)
		require.ElementsMatch(w, []session.Grant{{Session: -key.ID}, {Session: -99}, {Session: 99}}, ended)

		again, err := w.Keys.Revoke(w.Ctx, nil, key.ID)
		require.NoError(w, err)
		require.WithinDuration(w, *revoked.RevokedAt, *again.RevokedAt, time.Millisecond, "the first time counts")
		_, err = w.Keys.Revoke(w.Ctx, nil, 99)
		require.Equal(w, refusal.NotFound, refusal.CodeOf(err))
	})
}

// A key no longer acts for a user who is suspended or in the grace period of a deletion, neither
// in a new call nor on an open connection.
func TestKeysDoNotActForHiddenUsers(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, c *clock) {
		_, text := create(w, "", apikey.Read)
		ann, ben := w.User("ann"), w.User("ben")
		grants := map[string]session.Grant{}
		act := func(who session.Viewer) string {
			return text + " " + w.Stores.DB.User.GetX(w.Ctx, who.ID).NodeID()
		}
		var all []session.Grant
		for _, credential := range []string{text, act(ann), act(ben)} {
			v, _, err := w.Login.Authenticate(w.Ctx, credential)
			require.NoError(w, err)
			grants[credential] = v.Grant()
			all = append(all, v.Grant())
		}
		for _, hide := range []func() error{
			func() error {
				_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, ann.ID, "", account.Suspension{})
				return err
			},
			func() error { _, _, err := w.Accounts.Delete(w.Ctx, ann.ID, feedtest.Grace); return err },
		} {
			ended, err := w.Sessions.Ended(w.Ctx, all)
			require.NoError(w, err)
			require.Empty(w, ended)
			require.NoError(w, hide())
			ended, err = w.Sessions.Ended(w.Ctx, all)
			require.NoError(w, err)
			require.Equal(w, []session.Grant{grants[act(ann)]}, ended)
			c.at = c.at.Add(2*time.Second + time.Millisecond)
			w.RequireRefused(act(ann))
			_, _, err = w.Login.Authenticate(w.Ctx, act(ben))
			require.NoError(w, err)
			_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, ann.ID, "")
			require.NoError(w, err)
			if !w.Stores.DB.User.GetX(w.Ctx, ann.ID).Hidden {
				_, _, err = w.Login.Authenticate(w.Ctx, act(ann))
				require.NoError(w, err)
			}
		}
	})
}

func TestKeysAreListed(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, _ *clock) {
		var want []int64
		for range 5 {
			key, _ := create(w, "", apikey.Write)
			want = append([]int64{key.ID}, want...)
		}
		_, err := w.Keys.Revoke(w.Ctx, nil, want[1])
		require.NoError(w, err)
		var got []int64
		two := 2
		for page := (paging.Page{First: &two}); ; {
			list, err := w.Keys.List(w.Ctx, page)
			require.NoError(w, err)
			for _, k := range list.Nodes() {
				got = append(got, k.ID)
				require.Equal(w, k.ID == want[1], k.RevokedAt != nil)
			}
			if !list.HasNextPage {
				break
			}
			page.After = list.PageInfo().EndCursor
		}
		require.Equal(w, want, got)
	})
}

// The last use is written after the calls, and never moves back.
func TestLastUseIsNoted(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, c *clock) {
		key, text := create(w, "", apikey.Read)
		use := func() { _, _, _ = w.Login.Authenticate(w.Ctx, text) }
		note := func() { // Run writes it once more when it ends
			ended, end := context.WithCancel(w.Ctx)
			end()
			require.ErrorIs(w, w.Keys.Run(ended), context.Canceled)
		}
		noted := func() *time.Time { return w.Stores.DB.APIKey.GetX(w.Ctx, key.ID).LastUsedAt }
		use()
		require.Nil(w, noted(), "no call waits for it")
		note()
		first := *noted()
		require.WithinDuration(w, c.at, first, time.Millisecond)
		c.at = c.at.Add(time.Second)
		use() // found in memory
		note()
		require.WithinDuration(w, c.at, *noted(), time.Millisecond)
		later := *noted()
		c.at = c.at.Add(-time.Hour)
		use()
		note()
		require.WithinDuration(w, later, *noted(), 0)
	})
}

func TestKeysThatAreNotMade(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, _ *clock) {
		by := &apikey.Key{Scopes: []apikey.Scope{apikey.Manage, apikey.Read}}
		ofApp := &apikey.Key{Issuer: "app", Scopes: by.Scopes}
		for _, c := range []struct {
			by           *apikey.Key
			name, issuer string
			scopes       []apikey.Scope
			code         refusal.Code
		}{
			{nil, "", "", []apikey.Scope{apikey.Read}, refusal.BadInput},
			{nil, strings.Repeat("n", 101), "", []apikey.Scope{apikey.Read}, refusal.BadInput},
			{nil, "two\nlines", "", []apikey.Scope{apikey.Read}, refusal.BadInput},
			{nil, "k", strings.Repeat("i", 256), []apikey.Scope{apikey.Read}, refusal.BadInput},
			{nil, "k", "a\x00", []apikey.Scope{apikey.Read}, refusal.BadInput},
			{nil, "k", "", nil, refusal.BadInput},
			{nil, "k", "", []apikey.Scope{apikey.Read, "ALL"}, refusal.BadInput},
			{by, "k", "", []apikey.Scope{apikey.Read, apikey.Write}, refusal.Forbidden},
			{by, "k", "app", []apikey.Scope{apikey.Read}, refusal.Forbidden},
			{ofApp, "k", "other", []apikey.Scope{apikey.Read}, refusal.Forbidden},
			{ofApp, "k", "", []apikey.Scope{apikey.Read}, refusal.Forbidden},
		} {
			_, _, err := w.Keys.Create(w.Ctx, c.by, c.name, c.issuer, c.scopes)
			require.Equal(w, c.code, refusal.CodeOf(err), "%v: %v", c, err)
		}
		_, _, err := w.Keys.Create(w.Ctx, by, "k", "", []apikey.Scope{apikey.Read, apikey.Manage})
		require.NoError(w, err)
	})
}

// A key can revoke only the keys that it could have created, including itself.
func TestKeysRevokeWhatTheyCover(t *testing.T) {
	t.Parallel()
	each(t, func(w *feedtest.World, _ *clock) {
		by, _ := create(w, "app", apikey.Read, apikey.Manage)
		for _, c := range []struct {
			issuer string
			scopes []apikey.Scope
			reason refusal.Reason
		}{
			{"app", []apikey.Scope{apikey.Read}, refusal.Reason{}},
			{"app", []apikey.Scope{apikey.Read, apikey.Write}, refusal.ScopeMissing},
			{"other", []apikey.Scope{apikey.Read}, refusal.OtherIssuer},
			{"", []apikey.Scope{apikey.Read}, refusal.OtherIssuer},
		} {
			key, text := create(w, c.issuer, c.scopes...)
			_, err := w.Keys.Revoke(w.Ctx, by, key.ID)
			if c.reason == (refusal.Reason{}) {
				require.NoError(w, err)
				w.RequireRefused(text)
				continue
			}
			var refused *refusal.Error
			require.ErrorAs(w, err, &refused)
			require.Equal(w, c.reason, refused.Reason)
			_, _, err = w.Login.Authenticate(w.Ctx, text)
			require.NoError(w, err)
		}
		_, err := w.Keys.Revoke(w.Ctx, by, by.ID)
		require.NoError(w, err)
	})
}

// The token of a session is never mistaken for a key, and a key that was cut off is never
// mistaken for a session.
func TestSessionsAreNoKeys(t *testing.T) {
	for _, token := range []string{"", "tk_" + strings.Repeat("_", 40), "tk_7_" + strings.Repeat("a", 38), strings.Repeat("a", 43), "a.b.c"} {
		require.False(t, apikey.IsKey(token), token)
	}
	for _, key := range []string{"tk_", "tk_7", "tk_7_", "tk_7_abc", "tk_7_abc external:7", "tk_7_" + strings.Repeat("a", 43) + " external:7"} {
		require.True(t, apikey.IsKey(key), key)
	}
	require.Empty(t, session.Viewer{}.Key)
}
