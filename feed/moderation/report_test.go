package moderation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/storage"
	"tideline/storage/storagetest"
)

var spam = moderation.Complaint{Reason: report.ReasonSPAM, Comment: "again and again"}

// queue returns the reports with a status that a moderator sees.
func queue(w *feedtest.World, who session.Viewer, of report.Status) []*ent.Report {
	w.Helper()
	page, err := w.Moderation.Reports(w.Ctx, moderation.By(who), of, paging.Page{})
	require.NoError(w, err)
	return page.Nodes()
}

// A report keeps the text of its post, whatever happens to the post, once for each reporter.
func TestReport(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		bad, good, stranger := w.User("bad"), w.User("good"), w.User("stranger")
		w.Follow(good, bad)
		post := w.Post(bad, schema.Followers)
		m := w.Moderation
		for _, refused := range []struct {
			code refusal.Code
			do   func() (bool, error)
		}{
			{refusal.Unauthenticated, func() (bool, error) { return m.ReportPost(w.Ctx, session.Viewer{}, post, spam) }},
			{refusal.Unauthenticated, func() (bool, error) { return m.ReportUser(w.Ctx, session.Viewer{}, bad.ID, spam) }},
			{refusal.NotFound, func() (bool, error) { return m.ReportUser(w.Ctx, stranger, 1, spam) }},
			{refusal.BadInput, func() (bool, error) { return m.ReportPost(w.Ctx, bad, post, spam) }},
			{refusal.BadInput, func() (bool, error) { return m.ReportUser(w.Ctx, bad, bad.ID, spam) }},
			{refusal.BadInput, func() (bool, error) {
				return m.ReportUser(w.Ctx, good, bad.ID, moderation.Complaint{Reason: report.ReasonSPAM, Comment: strings.Repeat("a", moderation.MaxComment+1)})
			}},
		} {
			_, err := refused.do()
			requireCode(w, refused.code, err)
		}
		require.Empty(w, queue(w, moderator, ""))

		for _, want := range []bool{true, false} {
			reported, err := m.ReportPost(w.Ctx, good, post, spam)
			require.NoError(w, err)
			require.Equal(w, want, reported)
			reported, err = m.ReportUser(w.Ctx, good, bad.ID, spam)
			require.NoError(w, err)
			require.Equal(w, want, reported)
		}
		text := w.Stores.DB.Post.GetX(w.Ctx, post).Text
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bad, post))
		list := queue(w, moderator, "")
		require.Len(w, list, 2)
		require.Equal(w, []any{good.ID, bad.ID, post, text, report.ReasonSPAM, "again and again"},
			[]any{list[0].ReporterID, list[0].ReportedID, list[0].PostID, list[0].Text, list[0].Reason, list[0].Comment})
		require.Equal(w, []any{bad.ID, int64(0), ""}, []any{list[1].ReportedID, list[1].PostID, list[1].Text})
	})
}

// A user can report a post that they no longer see, and a suspended user. Neither the answer nor
// later answers reveal whether the post exists.
func TestReportOfWhatTheReporterNoLongerSees(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		good, m := w.User("good"), w.Moderation
		none := func(*ent.Tx, *ent.User) error { return nil }
		var want []int64
		for i, hide := range []func(bad session.Viewer, post int64) error{
			func(bad session.Viewer, _ int64) error { _, err := w.Feed.Block(w.Ctx, bad, good.ID); return err },
			func(bad session.Viewer, _ int64) error { _, err := w.Feed.Block(w.Ctx, good, bad.ID); return err },
			func(bad session.Viewer, post int64) error {
				_, err := w.Feed.SetVisibility(w.Ctx, bad, post, schema.Private)
				return err
			},
			func(bad session.Viewer, _ int64) error {
				_, err := w.Feed.RemoveFollower(w.Ctx, bad, good.ID)
				return err
			},
			func(bad session.Viewer, _ int64) error {
				_, err := w.Accounts.Suspend(w.Ctx, bad.ID, account.Suspension{}, none)
				return err
			},
			func(bad session.Viewer, _ int64) error {
				_, _, err := w.Accounts.Delete(w.Ctx, bad.ID, feedtest.Grace)
				return err
			},
		} {
			bad := w.User(fmt.Sprint("bad", i))
			w.Follow(good, bad)
			post := w.Post(bad, schema.Followers)
			require.NoError(w, hide(bad, post))
			_, err := w.Feed.Post(w.Ctx, good, post)
			requireCode(w, refusal.NotFound, err)
			for range 2 {
				reported, err := m.ReportPost(w.Ctx, good, post, spam)
				require.NoError(w, err)
				require.True(w, reported)
			}
			for _, want := range []bool{true, false} {
				reported, err := m.ReportUser(w.Ctx, good, bad.ID, spam)
				require.NoError(w, err)
				require.Equal(w, want, reported)
			}
			want = append(want, post, 0)
		}
		var got []int64
		for _, r := range queue(w, moderator, "") {
			require.Equal(w, r.PostID == 0, r.Text == "", "with the text of the post")
			got = append(got, r.PostID)
		}
		require.Equal(w, want, got)

		// Subjects that do not exist or are being deleted get the same answer, without a report.
		gone := w.User("gone")
		deleted, ofGone := w.Post(gone, schema.Public), w.Post(gone, schema.Public)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, gone, deleted))
		_, _, err := w.Accounts.Delete(w.Ctx, gone.ID, 0)
		require.NoError(w, err)
		for _, post := range []int64{deleted, ofGone, 12345} {
			reported, err := m.ReportPost(w.Ctx, good, post, spam)
			require.NoError(w, err)
			require.True(w, reported)
		}
		for _, id := range []int64{gone.ID, 12345} {
			_, err = m.ReportUser(w.Ctx, good, id, spam)
			requireCode(w, refusal.NotFound, err)
		}
		_, err = m.ReportPost(w.Ctx, good, 12345, moderation.Complaint{Reason: report.ReasonSPAM, Comment: strings.Repeat("a", moderation.MaxComment+1)})
		requireCode(w, refusal.BadInput, err)
		require.Len(w, queue(w, moderator, ""), len(want))

		// Neither the bound of open reports nor the export reveals reports of unseen posts.
		author := w.User("author")
		w.Stores.DB.Report.Delete().ExecX(w.Ctx)
		for i := range moderation.MaxOpenReports + 1 {
			reported, err := m.ReportPost(w.Ctx, good, w.Post(author, schema.Private), spam)
			require.NoError(w, err)
			require.True(w, reported, i)
		}
		require.Equal(w, moderation.MaxOpenReports, w.Stores.DB.Report.Query().CountX(w.Ctx))
		reported, err := m.ReportPost(w.Ctx, good, w.Post(author, schema.Public), spam)
		require.NoError(w, err)
		require.True(w, reported)
		var file bytes.Buffer
		require.NoError(w, w.Accounts.Export(w.Ctx, good.ID, &file))
		require.Equal(w, 1, strings.Count(file.String(), `"type":"report"`))
	})
}

// Moderators read the former versions of an edited post, even if only its report shows the post.
func TestModeratorsReadVersions(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		moderator, _ := staff(w)
		bad, good := w.User("bad"), w.User("good")
		id := w.Post(bad, schema.Public)
		first := w.Stores.DB.Post.GetX(w.Ctx, id).Text
		edited, err := w.Feed.UpdatePost(w.Ctx, bad, id, feed.Edit{Text: new("nothing bad")})
		require.NoError(w, err)
		for v, sees := range map[session.Viewer]bool{bad: true, moderator: true, good: false, {}: false} {
			page, err := w.Moderation.Versions(w.Ctx, v, edited, paging.Page{})
			require.NoError(w, err)
			if !sees {
				require.Nil(w, page)
				continue
			}
			require.Len(w, page.Edges, 1)
			require.Equal(w, first, page.Edges[0].Node.Text)
		}
		_, err = w.Moderation.ReportPost(w.Ctx, good, id, spam)
		require.NoError(w, err)
		_, err = w.Moderation.ReportUser(w.Ctx, good, bad.ID, spam)
		require.NoError(w, err)
		_, err = w.Feed.SetVisibility(w.Ctx, bad, id, schema.Private)
		require.NoError(w, err)
		reports := queue(w, moderator, "")
		page, err := w.Moderation.ReportedVersions(w.Ctx, reports[0], paging.Page{})
		require.NoError(w, err)
		require.Len(w, page.Edges, 1)
		require.Equal(w, first, page.Edges[0].Node.Text)
		page, err = w.Moderation.ReportedVersions(w.Ctx, reports[1], paging.Page{})
		require.NoError(w, err)
		require.Nil(w, page, "a report of a user")
	})
}

func TestOpenReportsAreBounded(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		eager := w.User("eager")
		users := w.Users(moderation.MaxOpenReports + 1)
		for _, u := range users[1:] {
			_, err := w.Moderation.ReportUser(w.Ctx, eager, u.ID, spam)
			require.NoError(w, err)
		}
		_, err := w.Moderation.ReportUser(w.Ctx, eager, users[0].ID, spam)
		requireCode(w, refusal.Conflict, err)
		first := queue(w, eagerAsModerator(w, eager), "")[0]
		_, _, err = w.Moderation.Decide(w.Ctx, moderation.Console, first.ID, false, "")
		require.NoError(w, err)
		reported, err := w.Moderation.ReportUser(w.Ctx, eager, users[0].ID, spam)
		require.NoError(w, err)
		require.True(w, reported)
	})
}

func eagerAsModerator(w *feedtest.World, v session.Viewer) session.Viewer {
	w.Helper()
	_, err := w.Moderation.SetRole(w.Ctx, moderation.Console, v.ID, user.RoleMODERATOR, "")
	require.NoError(w, err)
	return v
}

// A claim reserves all open reports about one subject for one moderator for an hour. A decision
// closes them all.
func TestClaimAndDecide(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now()
		w := feedtest.Idle(t, s, feedtest.Options{Now: func() time.Time { return now }})
		first, admin := staff(w)
		second := eagerAsModerator(w, w.User("second"))
		bad, other := w.User("bad"), w.User("other")
		post := w.Post(bad, schema.Public)
		reporters := w.Users(4)
		m, by := w.Moderation, moderation.By
		for _, v := range reporters[:3] {
			_, err := m.ReportPost(w.Ctx, v, post, spam)
			require.NoError(w, err)
		}
		_, err := m.ReportUser(w.Ctx, reporters[0], other.ID, spam)
		require.NoError(w, err)
		_, err = m.ReportUser(w.Ctx, reporters[0], second.ID, spam)
		require.NoError(w, err)

		open := queue(w, first, "")
		require.Len(w, open, 5)
		for i := range open[1:] {
			require.Less(w, open[i].ID, open[i+1].ID, "oldest first")
		}
		require.Len(w, queue(w, second, ""), 4, "nobody sees a report about themselves")
		for _, v := range []session.Viewer{reporters[0], {}} {
			want := refusal.Forbidden
			if v.ID == 0 {
				want = refusal.Unauthenticated
			}
			_, err := m.Reports(w.Ctx, by(v), "", paging.Page{})
			requireCode(w, want, err)
			_, err = m.Claim(w.Ctx, by(v), open[0].ID)
			requireCode(w, want, err)
			_, _, err = m.Decide(w.Ctx, by(v), open[0].ID, true, "")
			requireCode(w, want, err)
		}
		_, err = m.Claim(w.Ctx, by(second), open[4].ID)
		requireCode(w, refusal.NotFound, err)
		_, err = m.Claim(w.Ctx, by(second), open[4].ID+1)
		requireCode(w, refusal.NotFound, err)

		claimed, err := m.Claim(w.Ctx, by(first), open[1].ID)
		require.NoError(w, err)
		require.Equal(w, []any{open[1].ID, first.ID, now.Add(moderation.ClaimFor).UnixMilli()}, []any{claimed.ID, claimed.ClaimedBy, claimed.ClaimedUntil})
		_, err = m.ReportPost(w.Ctx, reporters[3], post, spam) // after the claim
		require.NoError(w, err)
		late := queue(w, first, "")[5]
		for _, id := range []int64{open[0].ID, late.ID} {
			_, err = m.Claim(w.Ctx, by(second), id)
			requireCode(w, refusal.Conflict, err)
			_, _, err = m.Decide(w.Ctx, by(second), id, true, "")
			requireCode(w, refusal.Conflict, err)
		}
		_, err = m.Claim(w.Ctx, by(second), open[3].ID)
		require.NoError(w, err, "another thing is another's")
		now = now.Add(moderation.ClaimFor + time.Millisecond)
		claimed, err = m.Claim(w.Ctx, by(second), late.ID)
		require.NoError(w, err)
		require.Equal(w, []any{second.ID, int64(0)}, []any{claimed.Claimant(), claimed.Decider()})

		decided, n, err := m.Decide(w.Ctx, by(second), late.ID, true, " hidden ")
		require.NoError(w, err)
		require.Equal(w, 4, n)
		require.Equal(w, []any{report.StatusUPHELD, "hidden", int64(0), second.ID, now.UnixMilli()}, []any{decided.Status, decided.Note, decided.Claimant(), decided.Decider(), decided.DecidedAt})
		repeated, n, err := m.Decide(w.Ctx, by(second), late.ID, true, " hidden ")
		require.NoError(w, err)
		require.Zero(w, n)
		require.Equal(w, decided.String(), repeated.String())
		_, _, err = m.Decide(w.Ctx, by(second), late.ID, false, "")
		requireCode(w, refusal.Conflict, err)
		_, _, err = m.Decide(w.Ctx, by(first), open[0].ID, true, "")
		requireCode(w, refusal.Conflict, err)
		_, err = m.Claim(w.Ctx, by(first), open[0].ID)
		requireCode(w, refusal.Conflict, err)
		require.Len(w, queue(w, first, ""), 2)
		upheld := queue(w, first, report.StatusUPHELD)
		require.Len(w, upheld, 4)
		require.Equal(w, late.ID, upheld[0].ID, "newest first")
		log, err := m.AuditLog(w.Ctx, by(admin), paging.Page{})
		require.NoError(w, err)
		entry := log.Nodes()[0]
		require.Equal(w, []any{second.ID, auditentry.ActionDECIDE_REPORT, auditentry.SubjectKindReport, late.ID, "hidden", schema.AuditDetails{Decision: "UPHELD"}},
			[]any{entry.ActorID, entry.Action, entry.SubjectKind, entry.SubjectID, entry.Note, entry.Details})

		size := 1
		page, err := m.Reports(w.Ctx, by(first), "", paging.Page{First: &size})
		require.NoError(w, err)
		require.True(w, page.HasNextPage)
		rest, err := m.Reports(w.Ctx, by(first), "", paging.Page{First: &size, After: &page.Edges[0].Cursor})
		require.NoError(w, err)
		require.False(w, rest.HasNextPage)
		require.NotEqual(w, page.Edges[0].Node.ID, rest.Edges[0].Node.ID)
	})
}

// If many moderators claim one subject at the same time, one succeeds.
func TestOneOfManyClaims(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		bad := w.User("bad")
		var ids []int64
		for _, v := range w.Users(4) {
			_, err := w.Moderation.ReportUser(w.Ctx, v, bad.ID, spam)
			require.NoError(w, err)
		}
		moderators := []session.Viewer{eagerAsModerator(w, w.User("one")), eagerAsModerator(w, w.User("two")), eagerAsModerator(w, w.User("three"))}
		for _, r := range queue(w, moderators[0], "") {
			ids = append(ids, r.ID)
		}
		errs := make(chan error, len(moderators))
		for i, v := range moderators {
			go func() {
				_, err := w.Moderation.Claim(w.Ctx, moderation.By(v), ids[i])
				errs <- err
			}()
		}
		done := 0
		for range moderators {
			if err := <-errs; err == nil {
				done++
			} else {
				requireCode(w, refusal.Conflict, err)
			}
		}
		require.Equal(w, 1, done)
		holders := map[int64]bool{}
		for _, r := range queue(w, moderators[0], "") {
			holders[r.ClaimedBy] = true
		}
		require.Len(w, holders, 1)
	})
}

// Webhooks are told when a report is made, and about each report that a decision closes.
func TestReportsAreTold(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{Webhooks: webhook.NewOutbox(s.DB, nil, nil)})
		w.Run(w.IDs.Run)
		d, err := webhook.NewDeliverer(webhook.Config{DB: s.DB, Dialect: s.Dialect})
		require.NoError(w, err)
		endpoint, _, err := d.Add(w.Ctx, "https://app.example.com/reports", []string{"report.*"})
		require.NoError(w, err)
		bad := w.User("bad")
		post := w.Post(bad, schema.Public)
		for _, v := range w.Users(2) {
			_, err := w.Moderation.ReportPost(w.Ctx, v, post, spam)
			require.NoError(w, err)
		}
		first := w.Stores.DB.Report.Query().Order(ent.Asc(report.FieldID)).FirstX(w.Ctx)
		_, _, err = w.Moderation.Decide(w.Ctx, moderation.Console, first.ID, false, "a joke")
		require.NoError(w, err)
		list, err := d.Deliveries(w.Ctx, webhook.ListOptions{Endpoint: endpoint.ID})
		require.NoError(w, err)
		var types []string
		var last struct{ Data webhook.Data }
		slices.Reverse(list) // newest last
		for _, row := range list {
			types = append(types, row.Type)
			require.NoError(w, json.Unmarshal([]byte(row.Body), &last))
		}
		require.Equal(w, []string{webhook.ReportCreated, webhook.ReportCreated, webhook.ReportDecided, webhook.ReportDecided}, types)
		r := last.Data.Report
		require.Equal(w, []any{"DISMISSED", "a joke", "SPAM", "again and again", ent.NodeID("User", bad.ID), ent.NodeID("Post", post)},
			[]any{r.Status, r.Note, r.Reason, r.Comment, r.Reported.ID, r.Post.ID})
	})
}
