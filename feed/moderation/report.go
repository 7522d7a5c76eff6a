package moderation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/report"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
)

const (
	// MaxComment bounds the characters of what a reporter adds.
	MaxComment = 1000
	// MaxOpenReports is how many reports of one user may be undecided. Reports about posts that
	// the user cannot see are counted apart, up to the same number.
	MaxOpenReports = 100
	// ClaimFor is how long a claimed report is kept for its moderator.
	ClaimFor = time.Hour
	// maxAlike is how many reports of the same thing are claimed, or decided, at once.
	maxAlike = 500
)

var commentField = text.Field{What: "The comment", Name: "comment", Limit: "commentLength", Most: MaxComment}

var errNoSuchReport error = refusal.New(refusal.NoSuchReport, "There is no such report.")

// Complaint is what a user says of what they report.
type Complaint struct {
	Reason  report.Reason
	Comment string
}

// ReportPost tells the moderators of a post. The report keeps the text that the post has now.
// Reported is false when an open report of the viewer says so already.
//
// The viewer may report a post that they can no longer see, for example because its author
// blocked them meanwhile. The result does not tell whether such a post exists: it is always
// true, also where there is nothing to report, and where MaxOpenReports of that kind are
// undecided already.
//
// Errors: Unauthenticated, BadInput, also for a post of the viewer; Conflict when
// MaxOpenReports are undecided.
//
// Cost: two look-ups of the post, and a short transaction that locks both users.
func (m *Moderation) ReportPost(ctx context.Context, v account.Viewer, id int64, c Complaint) (reported bool, err error) {
	if m.cfg.Feed == nil {
		return false, errNoFeed
	}
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

// ReportUser tells the moderators of a user, also while nobody sees the user, unless the user
// is being deleted. Results are those of ReportPost of a post that the viewer sees, and so are
// errors; NotFound where there is no such user.
//
// Cost: a short transaction that locks both users.
func (m *Moderation) ReportUser(ctx context.Context, v account.Viewer, id int64, c Complaint) (reported bool, err error) {
	return m.report(ctx, v, id, new(ent.Post), false, c)
}

// report writes a report about a user, or about a post of the user. Unseen says that the
// viewer cannot see the post: then nothing that report returns depends on whether there is one.
func (m *Moderation) report(ctx context.Context, v account.Viewer, reported int64, about *ent.Post, unseen bool, c Complaint) (made bool, err error) {
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
			return rows.Wrap("find reports", err)
		}
		if n, err := open.Where(report.Unseen(unseen)).Count(ctx); err != nil || n >= MaxOpenReports {
			if err == nil && !unseen {
				err = refusal.New(refusal.TooManyReports, "%d of your reports are not decided yet.", n).Beyond("openReports", MaxOpenReports, n+1)
			}
			return err
		}
		r, err := tx.Report.Create().SetReporterID(v.ID).SetReportedID(reported).SetPostID(about.ID).SetText(about.Text).SetUnseen(unseen).
			SetReason(c.Reason).SetComment(c.Comment).SetCreatedAt(m.cfg.Now()).Save(ctx)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		made = true
		return m.cfg.Webhooks.Report(ctx, tx, webhook.ReportCreated, r, reporter, other)
	})
	return made && err == nil, err
}

// lockPair locks two users in the order of their ids. Errors: ErrSignIn when the first is
// hidden or missing; NotFound when the second is missing or being deleted.
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

// Reports is a page of the reports of a status, OPEN by default, but for those about the moderator who asks:
// open ones oldest first, as they wait to be decided, others newest first. Errors:
// Unauthenticated, BadInput; Forbidden for who is no moderator.
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
	return paging.Connect(w, list, func(r *ent.Report) paging.Edge[ent.Report] {
		return paging.Edge[ent.Report]{Cursor: paging.Cursor{ID: r.ID}.Encode(paging.Reports, 0), Node: r}
	}), nil
}

// Claim keeps an open report for the actor, for ClaimFor, with all open ones of the same
// thing, so that no two moderators look at one thing. To claim it again begins the time
// anew. Errors: Unauthenticated; NotFound, also for a report about the actor; Conflict for
// one that another claims or that is decided; Forbidden for who is no moderator.
//
// Cost: a look-up, and a short transaction that locks the reported user.
func (m *Moderation) Claim(ctx context.Context, who Actor, id int64) (*ent.Report, error) {
	r, _, err := m.handle(ctx, who, id, func(tx *ent.Tx, alike []int64) error {
		return tx.Report.Update().Where(rows.Among(report.FieldID, alike)).
			SetClaimedBy(who.ID).SetClaimedUntil(m.cfg.Now().Add(ClaimFor).UnixMilli()).Exec(ctx)
	})
	return r, err
}

// Decide ends a report, with all open ones of the same thing but the 500th and those after
// it, and says how many. Upheld or dismissed, it changes neither post nor user: HidePost and
// Suspend do. Errors: as Claim, and BadInput.
//
// Cost: as Claim, an entry of the audit log, and an insert for each report where an endpoint
// of webhooks wants them.
func (m *Moderation) Decide(ctx context.Context, who Actor, id int64, upheld bool, note string) (r *ent.Report, decided int, err error) {
	if note, err = noteField.Clean(note); err != nil {
		return nil, 0, err
	}
	to := report.StatusDISMISSED
	if upheld {
		to = report.StatusUPHELD
	}
	return m.handle(ctx, who, id, func(tx *ent.Tx, alike []int64) error {
		err := tx.Report.Update().Where(rows.Among(report.FieldID, alike)).
			SetStatus(to).SetClaimedBy(0).SetDecidedAt(m.cfg.Now().UnixMilli()).SetNote(note).Exec(ctx)
		if err != nil {
			return err
		}
		said := string(to)
		if note != "" {
			said += ": " + note
		}
		if err := record(ctx, tx, who, auditentry.ActionDECIDE_REPORT, auditentry.SubjectKindReport, id, said); err != nil {
			return err
		}
		return m.tellDecided(ctx, tx, alike)
	})
}

// handle does something to an open report and all like it, and returns the report as it is
// then, and how many they are. The lock on the reported user puts two moderators into an
// order, and those who report meanwhile.
func (m *Moderation) handle(ctx context.Context, who Actor, id int64, do func(tx *ent.Tx, alike []int64) error) (r *ent.Report, n int, err error) {
	if _, err := m.demand(ctx, who, user.RoleMODERATOR); err != nil {
		return nil, 0, err
	}
	err = rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error {
		find := tx.Report.Query().Where(report.ID(id), report.ReportedIDNEQ(who.ID))
		first, err := find.Clone().Only(ctx)
		if ent.IsNotFound(err) {
			return errNoSuchReport
		}
		if err != nil {
			return fmt.Errorf("find report: %w", err)
		}
		if _, err := tx.User.Query().Where(user.ID(first.ReportedID), rows.ForUpdate).OnlyID(ctx); err != nil {
			return rows.Wrap("lock user", unlessGone(err))
		}
		r, err = find.Clone().Only(ctx)
		if err != nil {
			return rows.Wrap("find report", unlessGone(err))
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
			return refusal.New(refusal.ReportClaimed, "Another moderator looks at it.")
		}
		alike, err := like.Where(report.IDNEQ(id)).Order(ent.Asc(report.FieldID)).Limit(maxAlike - 1).IDs(ctx)
		if err != nil {
			return fmt.Errorf("find reports: %w", err)
		}
		alike = append(alike, id)
		if err := do(tx, alike); err != nil {
			return rows.Wrap("handle report", err)
		}
		n = len(alike)
		r, err = tx.Report.Get(ctx, id)
		return rows.Wrap("read report", err)
	})
	if err != nil {
		return nil, 0, err
	}
	return r, n, nil
}

// Versions is a page of what a post said before, newest first, for its author and for
// moderators; nil for anybody else. Error: BadInput.
//
// Cost: an index range of the page, and a look-up of the role of anybody but the author.
func (m *Moderation) Versions(ctx context.Context, v account.Viewer, of *ent.Post, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
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

// ReportedVersions is a page of what the post of a report said before, newest first; nil for a
// report of a user. The caller has got the report from this package, as only moderators do.
// Error: BadInput.
//
// Cost: an index range of the page.
func (m *Moderation) ReportedVersions(ctx context.Context, r *ent.Report, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
	if r.PostID == 0 {
		return nil, nil
	}
	return m.cfg.Feed.VersionsOf(ctx, r.PostID, p)
}

// unlessGone is errNoSuchReport for a row that is not there any more.
func unlessGone(err error) error {
	if ent.IsNotFound(err) {
		return errNoSuchReport
	}
	return err
}

// tellDecided records for webhooks that the reports are decided.
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
