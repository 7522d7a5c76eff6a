package moderation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

const (
	// MaxComment bounds the characters of a reporter's comment.
	MaxComment = 1000
	// MaxOpenReports is how many open reports one user may have. Reports about posts that the user
	// cannot see count separately, up to the same number.
	MaxOpenReports = 100
	// ClaimFor is how long a claim reserves a report for a moderator.
	ClaimFor = time.Hour
	// maxAlike is how many reports about one subject are claimed, or decided, at once.
	maxAlike = 500
)

var commentField = text.Field{What: "The comment", Name: "comment", Limit: "commentLength", Most: MaxComment}

var errNoSuchReport error = refusal.New(refusal.NoSuchReport, "There is no such report.")

// Complaint is a user's reason for a report, with a comment.
type Complaint struct {
	Reason  report.Reason
	Comment string
}

// ReportPost reports a post to the moderators. The report keeps the post's present text. reported
// is false if the viewer already has an open report about the post.
//
// The viewer may report a post that they can no longer see, for example because its author has
// blocked them meanwhile. The result does not reveal whether such a post exists: it is always true,
// even if there is nothing to report, or if MaxOpenReports of that kind are open.
//
// Errors: Unauthenticated; BadInput, also for the viewer's own post; Conflict, if MaxOpenReports
// are open.
//
// Cost: two look-ups of the post, and a short transaction that locks both users.
func (m *Moderation) ReportPost(ctx context.Context, v session.Viewer, id int64, c Complaint) (reported bool, err error) {
	if v.ID == 0 {
		return false, refusal.ErrSignIn
	}
	p, err := m.cfg.Feed.Post(ctx, v, id)
	if err == nil {
		return m.report(ctx, v, p.AuthorID, p, false, c)
	}
	if refusal.CodeOf(err) != refusal.NotFound {
		return false, err
	}
	p, err = m.cfg.Feed.ReportedPost(ctx, id)
	if refusal.CodeOf(err) == refusal.NotFound {
		p = new(ent.Post)
	} else if err != nil {
		return false, err
	}
	_, err = m.report(ctx, v, p.AuthorID, p, true, c)
	return err == nil, err
}

// ReportUser reports a user to the moderators. The user may be suspended or in the grace period of
// a deletion. Results and errors are as for ReportPost with a post that the viewer sees, and
// NotFound if there is no such user.
//
// Cost: a short transaction that locks both users.
func (m *Moderation) ReportUser(ctx context.Context, v session.Viewer, id int64, c Complaint) (reported bool, err error) {
	return m.report(ctx, v, id, new(ent.Post), false, c)
}

// report writes a report about a user, or about a post of the user. unseen says that the viewer
// cannot see the post. Then no result depends on whether the post exists.
func (m *Moderation) report(ctx context.Context, v session.Viewer, reported int64, about *ent.Post, unseen bool, c Complaint) (made bool, err error) {
	switch c.Comment, err = commentField.Clean(c.Comment); {
	case v.ID == 0:
		return false, refusal.ErrSignIn
	case v.ID == reported:
		return false, refusal.New(refusal.Yourself, "You cannot report yourself.")
	case err != nil:
		return false, err
	}
	err = rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error {
		made = false
		reporter, other, err := lockPair(ctx, tx, v.ID, reported)
		if err != nil {
			if unseen && refusal.CodeOf(err) == refusal.NotFound {
				err = nil
			}
			return err
		}
		open := tx.Report.Query().Where(report.ReporterID(v.ID), report.StatusEQ(report.StatusOPEN))
		if found, err := open.Clone().Where(report.ReportedID(reported), report.PostID(about.ID)).Exist(ctx); err != nil || found {
			return errs.Wrap(err, "find reports")
		}
		if n, err := open.Where(report.Unseen(unseen)).Count(ctx); err != nil || n >= MaxOpenReports {
			if err == nil && !unseen {
				err = refusal.New(refusal.TooManyReports, "%d of your reports are not decided yet.", n).Beyond("openReports", MaxOpenReports, n+1)
			}
			return err
		}
		r, err := tx.Report.Create().SetReporterID(v.ID).SetReportedID(reported).SetPostID(about.ID).SetText(about.Text).SetUnseen(unseen).
			SetParentID(cmp.Or(about.ParentID, about.RepostOf)).SetRootID(about.RootID).
			SetReason(c.Reason).SetComment(c.Comment).SetCreatedAt(m.cfg.Now()).Save(ctx)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		made = true
		return m.cfg.Webhooks.Report(ctx, tx, webhook.ReportCreated, r, reporter, other)
	})
	return made && err == nil, err
}

// lockPair locks two users in the order of their ids. Errors: ErrSignIn, if the first is hidden or
// missing; NotFound, if the second is missing or being deleted.
func lockPair(ctx context.Context, tx *ent.Tx, reporter, reported int64) (from, to *ent.User, err error) {
	found, err := tx.User.Query().Where(user.IDIn(reporter, reported), rows.ForUpdate).Order(user.ByID()).All(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("lock users: %w", err)
	}
	pair := rows.InOrder([]int64{reporter, reported}, found, func(u *ent.User) int64 { return u.ID })
	if pair[0] == nil || pair[0].Hidden {
		return nil, nil, refusal.ErrSignIn
	}
	returns := pair[1] != nil && !pair[1].Hidden
	if pair[1] != nil && pair[1].Hidden {
		if returns, err = rows.MayReturn(ctx, tx.HiddenUser, reported); err != nil {
			return nil, nil, err
		}
	}
	if !returns {
		return nil, nil, refusal.ErrNoSuchUser
	}
	return pair[0], pair[1], nil
}

// Reports returns a page of the reports with a status, OPEN by default, except reports about the
// actor. Open reports come oldest first, because they wait for a decision; others come newest
// first. Errors: Unauthenticated, BadInput; Forbidden, for an actor who is not a moderator.
//
// Cost: a look-up, and an index range.
func (m *Moderation) Reports(ctx context.Context, who Actor, of report.Status, p paging.Page) (*paging.Connection[ent.Report], error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, err
	}
	w, err := paging.Open(p, paging.Reports, 0, m.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	of = cmp.Or(of, report.StatusOPEN)
	order, beyond := ent.Desc(report.FieldID), report.IDLT
	if of == report.StatusOPEN {
		order, beyond = ent.Asc(report.FieldID), report.IDGT
	}
	q := m.cfg.DB.Report.Query().Where(report.StatusEQ(of), report.ReportedIDNEQ(who.ID)).Order(order).Limit(w.N + 1)
	if w.After != nil {
		q.Where(beyond(w.After.ID))
	}
	list, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	return paging.ConnectBy(w, list, paging.Reports, 0, func(r *ent.Report) int64 { return r.ID }), nil
}

// Report returns a report. Errors: Unauthenticated; NotFound, also for a report about the actor;
// Forbidden if the actor is not a moderator.
//
// Cost: two look-ups.
func (m *Moderation) Report(ctx context.Context, who Actor, id int64) (*ent.Report, error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, err
	}
	r, err := m.cfg.DB.Report.Query().Where(report.ID(id), report.ReportedIDNEQ(who.ID)).Only(ctx)
	return r, errs.Wrap(unlessGone(err), "find report")
}

// Claim reserves an open report and the other open reports about the same subject, 500 in all at most,
// for the actor for ClaimFor, so that no two moderators work on one subject. A second claim by the actor starts the
// time again. Errors: Unauthenticated; NotFound, also for a report about the actor; Conflict, if
// another moderator has claimed the report or it is decided; Forbidden, for an actor who is not a
// moderator.
//
// Cost: a look-up, and a short transaction that locks the reported user.
func (m *Moderation) Claim(ctx context.Context, who Actor, id int64) (*ent.Report, error) {
	r, _, err := m.handle(ctx, who, id, "", func(tx *ent.Tx, alike []int64) error {
		return tx.Report.Update().Where(rows.Among(report.FieldID, alike)).
			SetClaimedBy(who.ID).SetClaimedUntil(m.cfg.Now().Add(ClaimFor).UnixMilli()).Exec(ctx)
	})
	return r, err
}

// Decide closes a report and the other open reports about the same subject, 500 in all at most, and
// returns how many it closed. It does not change the post or the user; HidePost and Suspend do. A
// repeated call returns the report, and closes none. Errors: as Claim, and BadInput.
//
// Cost: as Claim, an entry of the audit log, and an insert for each report if a webhook endpoint
// asks for them.
func (m *Moderation) Decide(ctx context.Context, who Actor, id int64, upheld bool, note string) (r *ent.Report, decided int, err error) {
	if note, err = noteField.Clean(note); err != nil {
		return nil, 0, err
	}
	to := report.StatusDISMISSED
	if upheld {
		to = report.StatusUPHELD
	}
	return m.handle(ctx, who, id, to, func(tx *ent.Tx, alike []int64) error {
		err := tx.Report.Update().Where(rows.Among(report.FieldID, alike)).
			SetStatus(to).SetClaimedBy(who.ID).SetDecidedAt(m.cfg.Now().UnixMilli()).SetNote(note).Exec(ctx)
		if err != nil {
			return err
		}
		decided := Action{auditentry.ActionDECIDE_REPORT, auditentry.SubjectKindReport, id, note, schema.AuditDetails{Decision: string(to)}}
		if err := record(ctx, tx, who, decided); err != nil {
			return err
		}
		return m.tellDecided(ctx, tx, alike)
	})
}

// handle calls do with an open report and the other open reports about the same subject, maxAlike in all
// at most. It returns the report as it is afterwards, and the number of reports. If the actor has
// decided the report with the status already, it does not call do. The lock on the reported user serialises
// moderators with each other and with users who report meanwhile.
func (m *Moderation) handle(ctx context.Context, who Actor, id int64, already report.Status, do func(tx *ent.Tx, alike []int64) error) (r *ent.Report, n int, err error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, 0, err
	}
	err = rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error {
		n = 0
		find := tx.Report.Query().Where(report.ID(id), report.ReportedIDNEQ(who.ID))
		first, err := find.Clone().Only(ctx)
		if ent.IsNotFound(err) {
			return errNoSuchReport
		}
		if err != nil {
			return fmt.Errorf("find report: %w", err)
		}
		if _, err := tx.User.Query().Where(user.ID(first.ReportedID), rows.ForUpdate).OnlyID(ctx); err != nil {
			return errs.Wrap(unlessGone(err), "lock user")
		}
		r, err = find.Clone().Only(ctx)
		if err != nil {
			return errs.Wrap(unlessGone(err), "find report")
		}
		if r.Status == already && r.ClaimedBy == who.ID {
			return nil
		}
		if r.Status != report.StatusOPEN {
			return refusal.New(refusal.ReportDecided, "The report is decided already.")
		}
		like := tx.Report.Query().Where(report.ReportedID(r.ReportedID), report.PostID(r.PostID), report.StatusEQ(report.StatusOPEN))
		taken, err := like.Clone().Where(report.ClaimedByNotIn(0, who.ID), report.ClaimedUntilGT(m.cfg.Now().UnixMilli())).Exist(ctx)
		if err != nil {
			return fmt.Errorf("find claims: %w", err)
		}
		if taken && !who.Console {
			return refusal.New(refusal.ReportClaimed, "Another moderator has claimed it.")
		}
		alike, err := like.Where(report.IDNEQ(id)).Order(ent.Asc(report.FieldID)).Limit(maxAlike - 1).IDs(ctx)
		if err != nil {
			return fmt.Errorf("find reports: %w", err)
		}
		alike = append(alike, id)
		if err := do(tx, alike); err != nil {
			return errs.Wrap(err, "handle report")
		}
		n = len(alike)
		r, err = tx.Report.Get(ctx, id)
		return errs.Wrap(err, "read report")
	})
	if err != nil {
		return nil, 0, err
	}
	return r, n, nil
}

// Versions returns a page of a post's former versions, newest first, for its author and for
// moderators; nil for anybody else. Error: BadInput.
//
// Cost: an index range of the page, and a look-up of the role of anybody except the author.
func (m *Moderation) Versions(ctx context.Context, v session.Viewer, of *ent.Post, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
	if v.ID == of.AuthorID {
		return m.cfg.Feed.Versions(ctx, v, of, p)
	}
	if _, err := m.demand(ctx, By(v), user.RoleMODERATOR); err != nil {
		if code := refusal.CodeOf(err); code == refusal.Forbidden || code == refusal.Unauthenticated {
			err = nil
		}
		return nil, err
	}
	return m.cfg.Feed.VersionsOf(ctx, of.ID, p)
}

// ReportedVersions returns a page of the former versions of a report's post, newest first, or nil
// for a report about a user. The caller got the report from this package, which returns reports
// only to moderators. Error: BadInput.
//
// Cost: an index range of the page.
func (m *Moderation) ReportedVersions(ctx context.Context, r *ent.Report, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
	if r.PostID == 0 {
		return nil, nil
	}
	return m.cfg.Feed.VersionsOf(ctx, r.PostID, p)
}

// ReportedAncestors returns the posts that led to a report's post when it was reported, root first, as
// feed.ReportedAncestors does, or none for a report about a user. Of a repost it also returns the
// original. It returns posts that other users may not see: without them a moderator cannot judge what was
// said. The caller got the report from this package, which returns reports only to moderators.
//
// Cost: as feed.ReportedAncestors.
func (m *Moderation) ReportedAncestors(ctx context.Context, r *ent.Report) ([]*ent.Post, error) {
	return m.cfg.Feed.ReportedAncestors(ctx, r.ParentID, r.RootID)
}

// ReportedReplies returns the direct replies to a report's post, as feed.ReportedReplies does, or none for
// a report about a user. The caller got the report from this package.
//
// Cost: as feed.ReportedReplies.
func (m *Moderation) ReportedReplies(ctx context.Context, r *ent.Report) ([]*ent.Post, error) {
	if r.PostID == 0 {
		return []*ent.Post{}, nil
	}
	return m.cfg.Feed.ReportedReplies(ctx, r.PostID)
}

// unlessGone returns errNoSuchReport if the row is missing, and otherwise err.
func unlessGone(err error) error {
	if ent.IsNotFound(err) {
		return errNoSuchReport
	}
	return err
}

// tellDecided records webhook events that the reports are decided.
func (m *Moderation) tellDecided(ctx context.Context, tx *ent.Tx, ids []int64) error {
	if !m.cfg.Webhooks.Wanted() {
		return nil
	}
	list, err := tx.Report.Query().Where(rows.Among(report.FieldID, ids)).WithReporter().WithReported().Order(ent.Asc(report.FieldID)).All(ctx)
	if err != nil {
		return fmt.Errorf("read reports: %w", err)
	}
	for _, r := range list {
		if err := m.cfg.Webhooks.Report(ctx, tx, webhook.ReportDecided, r, r.Edges.Reporter, r.Edges.Reported); err != nil {
			return err
		}
	}
	return nil
}
