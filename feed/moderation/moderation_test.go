package moderation_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/hiddenuser"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// staff creates a moderator and an admin.
func staff(w *feedtest.World) (moderator, admin session.Viewer) {
	w.Helper()
	moderator, admin = w.User("mod"), w.User("boss")
	for v, role := range map[session.Viewer]user.Role{moderator: user.RoleMODERATOR, admin: user.RoleADMIN} {
		changed, err := w.Moderation.SetRole(w.Ctx, moderation.Console, v.ID, role, "")
		require.NoError(w, err)
		require.True(w, changed)
	}
	return moderator, admin
}

func requireCode(w *feedtest.World, want refusal.Code, err error) {
	w.Helper()
	require.Error(w, err)
	require.Equal(w, want, refusal.CodeOf(err), err.Error())
}

// signUp creates a user with a password, and a session.
func signUp(w *feedtest.World, handle string) (session.Viewer, string) {
	w.Helper()
	auth, err := w.Login.SignUp(w.Ctx, handle, "correct horse", "")
	require.NoError(w, err)
	return session.Viewer{ID: auth.User.ID}, auth.Token
}

func actions(w *feedtest.World, admin session.Viewer) (list []auditentry.Action) {
	w.Helper()
	log, err := w.Moderation.AuditLog(w.Ctx, moderation.By(admin), paging.Page{})
	require.NoError(w, err)
	for _, e := range log.Nodes() {
		list = append(list, e.Action)
	}
	return list
}

// Operate writes the audit log before it acts, also if the action fails. An actor who is not an
// admin can do nothing.
func TestOperate(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, admin := staff(w)
		done := 0
		operate := func(who moderation.Actor, note string, result error) error {
			return w.Moderation.Operate(w.Ctx, who, moderation.OfJobs(auditentry.ActionRETRY_JOBS, []int64{8, 7}, note), func(context.Context) error {
				require.Equal(w, auditentry.ActionRETRY_JOBS, actions(w, admin)[0])
				done++
				return result
			})
		}
		before := len(actions(w, admin))
		requireCode(w, refusal.Unauthenticated, operate(moderation.Actor{}, "", nil))
		requireCode(w, refusal.Forbidden, operate(moderation.By(moderator), "", nil))
		requireCode(w, refusal.BadInput, operate(moderation.By(admin), strings.Repeat("x", moderation.MaxNote+1), nil))
		require.Zero(w, done)
		require.Len(w, actions(w, admin), before)
		require.NoError(w, operate(moderation.By(admin), "", nil))
		require.ErrorIs(w, operate(moderation.By(admin), "again", errFailed), errFailed)
		log, err := w.Moderation.AuditLog(w.Ctx, moderation.By(admin), paging.Page{})
		require.NoError(w, err)
		entry := log.Nodes()[0]
		require.Equal(w, []any{int64(7), "again", schema.AuditDetails{JobCount: 2, Jobs: []int64{8, 7}}}, []any{entry.SubjectID, entry.Note, entry.Details})
		require.Equal(w, 2, done)
		require.Len(w, actions(w, admin), before+2)
	})
}

var errFailed = errors.New("it failed")

// Each action requires its role, and nobody can suspend a user whose role is not below their own.
func TestRoles(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, admin := staff(w)
		plain, other := w.User("plain"), w.User("other")
		post := w.Post(other, schema.Public)
		m, by := w.Moderation, moderation.By
		for _, v := range []session.Viewer{{}, plain} {
			want := refusal.Forbidden
			if v.ID == 0 {
				want = refusal.Unauthenticated
			}
			_, err := m.Suspend(w.Ctx, by(v), other.ID, "", account.Suspension{})
			requireCode(w, want, err)
			_, err = m.HidePost(w.Ctx, by(v), post, "")
			requireCode(w, want, err)
			_, err = m.SetRole(w.Ctx, by(v), v.ID, user.RoleADMIN, "")
			requireCode(w, want, err)
			_, err = m.AuditLog(w.Ctx, by(v), paging.Page{})
			requireCode(w, want, err)
		}
		_, err := m.SetRole(w.Ctx, by(moderator), moderator.ID, user.RoleADMIN, "")
		requireCode(w, refusal.Forbidden, err)
		_, err = m.AuditLog(w.Ctx, by(moderator), paging.Page{})
		requireCode(w, refusal.Forbidden, err)
		_, err = m.Suspend(w.Ctx, by(moderator), admin.ID, "", account.Suspension{})
		requireCode(w, refusal.Forbidden, err)
		_, err = m.Suspend(w.Ctx, by(moderator), 1, "", account.Suspension{})
		requireCode(w, refusal.NotFound, err)
		require.Len(w, actions(w, admin), 2, "what was refused is not in the log")

		_, err = m.SetRole(w.Ctx, by(admin), plain.ID, user.RoleMODERATOR, "helps out")
		require.NoError(w, err)
		changed, err := m.Suspend(w.Ctx, by(plain), other.ID, "spam", account.Suspension{})
		require.NoError(w, err)
		require.True(w, changed)
		changed, err = m.Suspend(w.Ctx, by(moderator), other.ID, "spam", account.Suspension{Reason: "you advertise"})
		require.NoError(w, err)
		require.False(w, changed)
		log, err := m.AuditLog(w.Ctx, by(admin), paging.Page{})
		require.NoError(w, err)
		last := log.Nodes()[0]
		require.Equal(w, []any{plain.ID, auditentry.ActionSUSPEND_USER, other.ID, "spam"}, []any{last.ActorID, last.Action, last.SubjectID, last.Note})
		require.Equal(w, "helps out", log.Nodes()[1].Note)
		require.Equal(w, schema.AuditDetails{RoleBefore: "USER", RoleAfter: "MODERATOR"}, log.Nodes()[1].Details)
		require.Len(w, log.Nodes(), 4)
		_, err = m.ReportPost(w.Ctx, plain, w.Post(admin, schema.Public), spam)
		require.NoError(w, err)
		_, _, err = m.Decide(w.Ctx, moderation.Console, queue(w, moderator, "")[0].ID, true, "")
		require.NoError(w, err)
		_, err = m.HidePost(w.Ctx, by(plain), post, "")
		require.NoError(w, err)
		log, err = m.AuditLog(w.Ctx, by(admin), paging.Page{First: new(3)})
		require.NoError(w, err)
		handles, err := m.Handles(w.Ctx, log.Nodes())
		require.NoError(w, err)
		require.Equal(w, []moderation.Handles{{Actor: "plain", Subject: "other"}, {Subject: "boss"}, {Actor: "plain", Subject: "other"}}, handles)

		// An admin knows every role, and others only their own.
		all := []int64{plain.ID, 1, admin.ID}
		moderates, administers := user.RoleMODERATOR, user.RoleADMIN
		for _, known := range []struct {
			by    session.Viewer
			roles []*user.Role
		}{
			{admin, []*user.Role{&moderates, nil, &administers}},
			{plain, []*user.Role{&moderates, nil, nil}},
			{w.User("curious"), []*user.Role{nil, nil, nil}},
			{session.Viewer{}, []*user.Role{nil, nil, nil}},
		} {
			roles, err := m.Roles(w.Ctx, by(known.by), all)
			require.NoError(w, err)
			require.Equal(w, known.roles, roles)
		}
	})
}

// A suspended user is told the reason at a log-in, and not the note. Moderators read it beside a report, and
// the audit log has both. It is gone when the suspension ends, or the account.
func TestTheReasonOfASuspension(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		_, admin := staff(w)
		bad, _ := signUp(w, "bad")
		other := w.User("other")
		m, all := w.Moderation, []int64{other.ID, bad.ID}
		_, err := m.Suspend(w.Ctx, moderation.By(admin), bad.ID, "", account.Suspension{Reason: strings.Repeat("x", account.MaxReason+1)})
		requireCode(w, refusal.BadInput, err)
		_, err = m.Suspend(w.Ctx, moderation.By(admin), bad.ID, "the third time", account.Suspension{Reason: " You advertise.\n"})
		require.NoError(w, err)
		told := func(reason string) {
			w.Helper()
			_, err := w.Login.LogIn(w.Ctx, "bad", "correct horse")
			var refused *refusal.Error
			require.ErrorAs(w, err, &refused)
			require.Equal(w, refusal.Suspended, refused.Reason)
			require.Equal(w, reason, refused.Explanation)
		}
		told("You advertise.")
		_, err = w.Login.LogIn(w.Ctx, "bad", "wrong horse")
		requireCode(w, refusal.Unauthenticated, err)
		log, err := m.AuditLog(w.Ctx, moderation.By(admin), paging.Page{})
		require.NoError(w, err)
		require.Equal(w, "the third time", log.Nodes()[0].Note)
		require.Equal(w, schema.AuditDetails{Reason: "You advertise."}, log.Nodes()[0].Details)
		suspensions, err := m.Suspensions(w.Ctx, all)
		require.NoError(w, err)
		require.Equal(w, []*moderation.Suspension{nil, {User: bad.ID, Handle: "bad", Name: "bad", Suspension: account.Suspension{Reason: "You advertise."}}}, suspensions)
		of := func(handle string) *moderation.Suspension {
			s, err := m.SuspensionOf(w.Ctx, moderation.By(admin), handle)
			require.NoError(w, err)
			return s
		}
		require.Equal(w, suspensions[1], of("Bad"))
		require.Nil(w, of("other"))
		require.Nil(w, of("unknown"))
		require.Nil(w, of("no handle"))
		_, err = m.SuspensionOf(w.Ctx, moderation.By(other), "bad")
		requireCode(w, refusal.Forbidden, err)

		third := w.User("third")
		_, err = m.Suspend(w.Ctx, moderation.Console, third.ID, "", account.Suspension{})
		require.NoError(w, err)
		_, _, err = w.Accounts.Delete(w.Ctx, w.User("leaving").ID, time.Hour)
		require.NoError(w, err)
		page := paging.Page{First: new(1)}
		var handles []string
		for more := true; more; {
			list, err := m.AllSuspensions(w.Ctx, moderation.By(admin), page)
			require.NoError(w, err)
			handles = append(handles, list.Nodes()[0].Handle)
			more, page.After = list.HasNextPage, list.PageInfo().EndCursor
		}
		require.Equal(w, []string{"third", "bad"}, handles, "newest users first")
		_, err = m.AllSuspensions(w.Ctx, moderation.By(other), paging.Page{})
		requireCode(w, refusal.Forbidden, err)
		_, err = m.Unsuspend(w.Ctx, moderation.Console, third.ID, "")
		require.NoError(w, err)

		_, err = m.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		require.NoError(w, err)
		suspensions, err = m.Suspensions(w.Ctx, all)
		require.NoError(w, err)
		require.Equal(w, []*moderation.Suspension{nil, nil}, suspensions)
		_, err = m.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{})
		require.NoError(w, err)
		told("")
		_, err = m.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		require.NoError(w, err)

		// The suspension of an account that leaves ends in the grace period.
		_, err = w.Login.DeleteAccount(w.Ctx, bad, "correct horse")
		require.NoError(w, err)
		_, err = m.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{Reason: "You advertise."})
		require.NoError(w, err)
		_, err = m.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		require.NoError(w, err)
		require.Empty(w, w.Stores.DB.HiddenUser.GetX(w.Ctx, bad.ID).Reason)
		_, err = m.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{Reason: "You advertise."})
		require.NoError(w, err)
		_, _, err = w.Accounts.Delete(w.Ctx, bad.ID, 0)
		require.NoError(w, err)
		require.Empty(w, w.Stores.DB.HiddenUser.GetX(w.Ctx, bad.ID).Reason)
	})
}

// The databases refuse to change or delete entries of the audit log.
func TestAuditLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		_, admin := staff(w)
		for _, statement := range []string{"UPDATE audit_entries SET note = 'nothing'", "DELETE FROM audit_entries"} {
			_, err := w.Stores.SQL.ExecContext(w.Ctx, statement)
			require.ErrorContains(w, err, "append-only")
		}
		if w.Stores.Dialect == dialect.SQLite {
			_, err := w.Stores.SQL.ExecContext(w.Ctx, "INSERT OR REPLACE INTO audit_entries (id, actor_id, action, subject_kind, subject_id, created_at) SELECT id, 7, action, subject_kind, subject_id, created_at FROM audit_entries")
			require.ErrorContains(w, err, "append-only")
		}
		require.Equal(w, []auditentry.Action{auditentry.ActionSET_ROLE, auditentry.ActionSET_ROLE}, actions(w, admin))
	})
}

// A suspended user is invisible and cannot sign in. After the suspension everything is as before.
func TestSuspendedUserIsHidden(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		follower := w.User("follower")
		bad, token := signUp(w, "bad")
		w.Follow(follower, bad)
		post := w.Post(bad, schema.Public)
		w.Drain()
		require.Equal(w, []int64{post}, w.Timeline(follower, 10))

		_, err := w.Moderation.Suspend(w.Ctx, moderation.By(moderator), bad.ID, "", account.Suspension{})
		require.NoError(w, err)
		for range 2 { // before its job and after
			require.Empty(w, w.Timeline(follower, 10))
			for _, v := range []session.Viewer{follower, moderator, {}} {
				_, err = w.Feed.Post(w.Ctx, v, post)
				requireCode(w, refusal.NotFound, err)
			}
			_, err = w.Directory.User(w.Ctx, "bad")
			requireCode(w, refusal.NotFound, err)
			following, err := w.Feed.Following(w.Ctx, follower.ID, paging.Page{})
			require.NoError(w, err)
			require.Empty(w, following.Edges)
			w.Drain()
		}
		_, _, err = w.Sessions.Authenticate(w.Ctx, token)
		requireCode(w, refusal.Unauthenticated, err)
		_, err = w.Login.LogIn(w.Ctx, "bad", "wrong horse")
		requireCode(w, refusal.Unauthenticated, err)
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		requireCode(w, refusal.Forbidden, err)
		_, err = w.Accounts.Restore(w.Ctx, bad.ID)
		requireCode(w, refusal.Forbidden, err)

		_, err = w.Moderation.Unsuspend(w.Ctx, moderation.By(moderator), bad.ID, "")
		require.NoError(w, err)
		w.Drain()
		require.Equal(w, []int64{post}, w.Timeline(follower, 10))
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		require.NoError(w, err)
	})
}

// A suspension ends at its time: for everybody when a worker has looked, and for the user at a log-in. One
// that a moderator began anew meanwhile does not end.
func TestSuspensionEndsByItself(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead atomic.Int64
		w := feedtest.Idle(t, s, feedtest.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		bad, _ := signUp(w, "bad")
		post := w.Post(bad, schema.Public)
		until := w.Now().Add(24 * time.Hour)
		suspend := func(until *time.Time) {
			_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{Reason: "You advertise.", Until: until})
			require.NoError(w, err)
		}
		ended := func() int {
			n, err := w.Accounts.EndSuspensions(w.Ctx)
			require.NoError(w, err)
			return n
		}
		gone := w.Now().Add(-time.Minute)
		_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{Until: &gone})
		require.Equal(w, refusal.NotInTheFuture, refusal.ReasonOf(err))

		suspend(&until)
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		var refused *refusal.Error
		require.ErrorAs(w, err, &refused)
		require.Equal(w, map[string]any{"code": "FORBIDDEN", "reason": "SUSPENDED", "explanation": "You advertise.", "until": until.UTC().Format(time.RFC3339)}, refused.Extensions())
		entries, err := w.Moderation.AuditLog(w.Ctx, moderation.Console, paging.Page{})
		require.NoError(w, err)
		require.Empty(w, entries.Nodes()[0].Note)
		details := entries.Nodes()[0].Details
		require.Equal(w, "You advertise.", details.Reason)
		require.WithinDuration(w, until, *details.Until, time.Millisecond)
		require.Zero(w, ended())
		ahead.Store(int64(25 * time.Hour))
		_, err = w.Feed.Post(w.Ctx, session.Viewer{}, post)
		requireCode(w, refusal.NotFound, err)
		require.Equal(w, 1, ended())
		require.Zero(w, ended())
		_, err = w.Feed.Post(w.Ctx, session.Viewer{}, post)
		require.NoError(w, err)
		require.False(w, w.Stores.DB.HiddenUser.Query().ExistX(w.Ctx))

		later := w.Now().Add(time.Hour)
		suspend(&later)
		ahead.Add(int64(2 * time.Hour))
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		require.NoError(w, err, "no worker has looked since")
		require.Zero(w, ended())

		suspend(nil)
		ahead.Add(int64(1000 * time.Hour))
		require.Zero(w, ended())
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		requireCode(w, refusal.Forbidden, err)

		// A scheduled deletion continues.
		w.Accounts.Unsuspend(w.Ctx, bad.ID, func(*ent.Tx, *ent.User) error { return nil })
		due, _, err := w.Accounts.Delete(w.Ctx, bad.ID, feedtest.Grace)
		require.NoError(w, err)
		later = w.Now().Add(time.Minute)
		suspend(&later)
		ahead.Add(int64(2 * time.Minute))
		require.Equal(w, 1, ended())
		row := w.Stores.DB.HiddenUser.GetX(w.Ctx, bad.ID)
		require.Equal(w, hiddenuser.StateLEAVING, row.State)
		require.Nil(w, row.SuspendedUntil)
		require.Equal(w, due.UnixMilli(), row.DueAt.UnixMilli())
	})
}

// A suspended user can lose a role, but cannot get a higher one.
func TestRoleIsTakenFromASuspendedUser(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, admin := staff(w)
		_, err := w.Moderation.Suspend(w.Ctx, moderation.By(admin), moderator.ID, "", account.Suspension{})
		require.NoError(w, err)
		_, err = w.Moderation.SetRole(w.Ctx, moderation.By(admin), moderator.ID, user.RoleADMIN, "")
		requireCode(w, refusal.NotFound, err)
		for _, first := range []bool{true, false} {
			changed, err := w.Moderation.SetRole(w.Ctx, moderation.By(admin), moderator.ID, user.RoleUSER, "")
			require.NoError(w, err)
			require.Equal(w, first, changed)
		}
	})
}

// A suspension wins over the grace period of a deletion, whose end stays the same. A deletion
// without a grace period wins over a suspension.
func TestSuspensionAndDeletion(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		bad, _ := signUp(w, "bad")
		until, err := w.Login.DeleteAccount(w.Ctx, bad, "correct horse")
		require.NoError(w, err)
		_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{})
		require.NoError(w, err)
		_, err = w.Login.LogIn(w.Ctx, "bad", "correct horse")
		requireCode(w, refusal.Forbidden, err)
		_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		require.NoError(w, err)
		row := w.Stores.DB.HiddenUser.GetX(w.Ctx, bad.ID)
		require.Equal(w, hiddenuser.StateLEAVING, row.State)
		require.Equal(w, until.UnixMilli(), row.DueAt.UnixMilli())
		auth, err := w.Login.LogIn(w.Ctx, "bad", "correct horse")
		require.NoError(w, err)
		require.True(w, auth.Restored)

		_, err = w.Moderation.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{})
		require.NoError(w, err)
		_, _, err = w.Accounts.Delete(w.Ctx, bad.ID, feedtest.Grace)
		requireCode(w, refusal.Conflict, err)
		_, changed, err := w.Accounts.Delete(w.Ctx, bad.ID, 0)
		require.NoError(w, err)
		require.True(w, changed)
		require.Equal(w, hiddenuser.StateDELETING, w.Stores.DB.HiddenUser.GetX(w.Ctx, bad.ID).State)
		_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		requireCode(w, refusal.NotFound, err)
	})
}

// A moderator or an admin whose post is hidden does not show it again: others do.
func TestModeratorsDoNotUnhideTheirOwnPosts(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, admin := staff(w)
		for author, other := range map[session.Viewer]moderation.Actor{moderator: moderation.By(admin), admin: moderation.By(moderator)} {
			id := w.Post(author, schema.Public)
			for _, who := range []moderation.Actor{other, moderation.Console} {
				_, err := w.Moderation.HidePost(w.Ctx, moderation.By(author), id, "")
				require.NoError(w, err)
				_, err = w.Moderation.UnhidePost(w.Ctx, moderation.By(author), id, "")
				require.Equal(w, refusal.OwnPost, refusal.ReasonOf(err))
				require.True(w, w.Stores.DB.Post.GetX(w.Ctx, id).HiddenByModerators())
				changed, err := w.Moderation.UnhidePost(w.Ctx, who, id, "")
				require.NoError(w, err)
				require.True(w, changed)
			}
		}
	})
}

// Only the author sees a hidden post, with its former visibility, which it has again after
// UnhidePost. Posts of every visibility can be hidden, and the counters stay right.
func TestHiddenPost(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		author, friend := w.User("author"), w.User("friend")
		w.Befriend(author, friend)
		counts := func(viewer session.Viewer) int {
			w.Helper()
			relations, err := w.Feed.Relations(w.Ctx, viewer, []int64{author.ID})
			require.NoError(w, err)
			return visibility.PostCount(viewer.ID, relations[0], w.Stores.DB.User.GetX(w.Ctx, author.ID))
		}
		of := func(viewer session.Viewer) []int64 {
			w.Helper()
			page, err := w.Feed.UserPosts(w.Ctx, viewer, author.ID, paging.Page{})
			require.NoError(w, err)
			return feedtest.PostIDs(page)
		}
		for _, v := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private} {
			post := w.Post(author, v)
			w.Drain()
			before, seen := w.Timeline(friend, 10), counts(friend)
			changed, err := w.Moderation.HidePost(w.Ctx, moderation.By(moderator), post, "")
			require.NoError(w, err)
			require.True(w, changed)
			for range 2 { // before its job and after
				require.NotContains(w, w.Timeline(friend, 10), post)
				require.NotContains(w, of(friend), post)
				for _, other := range []session.Viewer{friend, moderator, {}} {
					_, err = w.Feed.Post(w.Ctx, other, post)
					requireCode(w, refusal.NotFound, err)
				}
				require.Contains(w, w.Timeline(author, 10), post)
				require.Contains(w, of(author), post)
				require.Len(w, of(author), counts(author))
				require.Len(w, of(friend), counts(friend))
				w.Drain()
			}
			p, err := w.Feed.Post(w.Ctx, author, post)
			require.NoError(w, err)
			require.True(w, p.HiddenByModerators())
			require.Equal(w, v, p.Visibility.Shown())
			_, err = w.Feed.SetVisibility(w.Ctx, author, post, schema.Public)
			requireCode(w, refusal.Forbidden, err)

			changed, err = w.Moderation.UnhidePost(w.Ctx, moderation.By(moderator), post, "")
			require.NoError(w, err)
			require.True(w, changed)
			w.Drain()
			require.Equal(w, before, w.Timeline(friend, 10))
			require.Equal(w, seen, counts(friend))
			p, err = w.Feed.Post(w.Ctx, author, post)
			require.NoError(w, err)
			require.Equal(w, v, p.Visibility)
		}
		post := w.Post(author, schema.Public)
		_, err := w.Moderation.HidePost(w.Ctx, moderation.Console, post, "")
		require.NoError(w, err)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, author, post))
		require.Equal(w, 4, counts(author))
		_, err = w.Moderation.UnhidePost(w.Ctx, moderation.Console, post, "")
		requireCode(w, refusal.NotFound, err)
	})
}
