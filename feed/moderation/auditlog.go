package moderation

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/post"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/internal/errs"
)

// Action describes an entry of the audit log.
type Action struct {
	Kind        auditentry.Action
	SubjectKind auditentry.SubjectKind
	Subject     int64
	Note        string // written by the actor
	Details     schema.AuditDetails
}

// record adds an entry to the audit log. The database refuses to change or delete entries.
func record(ctx context.Context, tx *ent.Tx, who Actor, a Action) error {
	row := tx.AuditEntry.Create()
	if who.Key != nil {
		row.SetKeyID(who.Key.ID)
	}
	err := row.SetActorID(who.ID).SetAction(a.Kind).SetSubjectKind(a.SubjectKind).SetSubjectID(a.Subject).
		SetNote(a.Note).SetDetails(a.Details).Exec(ctx)
	return errs.Wrap(err, "write the audit log")
}

// Record adds an entry to the audit log, in the transaction of the change that it describes. It is
// for packages that store the subject themselves. Error: BadInput, for a note that is too long.
func Record(ctx context.Context, tx *ent.Tx, who Actor, a Action) (err error) {
	if a.Note, err = noteField.Clean(a.Note); err != nil {
		return err
	}
	return record(ctx, tx, who, a)
}

// Operate writes an entry into the audit log and then calls do, which changes something outside
// SQL, such as workers or timelines. The two cannot share a transaction, and an entry for a change
// that then failed is better than a change without an entry. Errors: Unauthenticated, BadInput;
// Forbidden, if who is not an admin; the error of do.
//
// Cost: a look-up, an insert, and the cost of do.
func (m *Moderation) Operate(ctx context.Context, who Actor, a Action, do func(context.Context) error) error {
	if err := m.DemandAdmin(ctx, who); err != nil {
		return err
	}
	err := rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error { return Record(ctx, tx, who, a) })
	if err != nil {
		return err
	}
	return do(ctx)
}

// OfJobs returns an action on one or more jobs. Its details name the first 20.
func OfJobs(kind auditentry.Action, jobs []int64, note string) Action {
	return Action{
		Kind: kind, SubjectKind: auditentry.SubjectKindJob, Subject: slices.Min(jobs), Note: note,
		Details: schema.AuditDetails{JobCount: len(jobs), Jobs: jobs[:min(len(jobs), 20)]},
	}
}

// AuditLog returns a page of the audit log, newest first. Errors: Unauthenticated, BadInput;
// Forbidden, if who is not an admin.
//
// Cost: a look-up, and an index range.
func (m *Moderation) AuditLog(ctx context.Context, who Actor, p paging.Page) (*paging.Connection[ent.AuditEntry], error) {
	if _, err := m.demand(ctx, who, user.RoleADMIN); err != nil {
		return nil, err
	}
	w, err := paging.Open(p, paging.AuditLog, 0, m.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	q := m.cfg.DB.AuditEntry.Query().Order(ent.Desc(auditentry.FieldID)).Limit(r.Limit)
	if w.After != nil {
		q.Where(auditentry.IDLT(r.Upper()))
	}
	list, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return paging.ConnectBy(w, list, paging.AuditLog, 0, func(e *ent.AuditEntry) int64 { return e.ID }), nil
}

// Handles names the users of an entry of the audit log: the actor, and the user, the author of the post, or the
// reported user. A handle is "" if there is none, or no longer.
type Handles struct{ Actor, Subject string }

// Handles returns the handles for entries, in their order. They include the handles of hidden users. The
// caller must be an admin: only admins get entries from this package.
//
// Cost: at most three queries.
func (m *Moderation) Handles(ctx context.Context, entries []*ent.AuditEntry) ([]Handles, error) {
	of := map[auditentry.SubjectKind][]int64{}
	for _, e := range entries {
		of[e.SubjectKind] = append(of[e.SubjectKind], e.SubjectID)
		of[auditentry.SubjectKindUser] = append(of[auditentry.SubjectKindUser], e.ActorID)
	}
	type subject struct {
		kind auditentry.SubjectKind
		id   int64
	}
	users := map[subject]int64{} // the user behind a post or a report
	if ids := of[auditentry.SubjectKindPost]; len(ids) > 0 {
		posts, err := m.cfg.DB.Post.Query().Where(rows.Among(post.FieldID, ids)).Select(post.FieldID, post.FieldAuthorID).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("read authors: %w", err)
		}
		for _, p := range posts {
			users[subject{auditentry.SubjectKindPost, p.ID}] = p.AuthorID
		}
	}
	if ids := of[auditentry.SubjectKindReport]; len(ids) > 0 {
		reports, err := m.cfg.DB.Report.Query().Where(rows.Among(report.FieldID, ids)).Select(report.FieldID, report.FieldReportedID).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("read reports: %w", err)
		}
		for _, r := range reports {
			users[subject{auditentry.SubjectKindReport, r.ID}] = r.ReportedID
		}
	}
	ids := of[auditentry.SubjectKindUser]
	for _, id := range users {
		ids = append(ids, id)
	}
	list, err := m.cfg.DB.User.Query().Where(rows.Among(user.FieldID, ids)).Select(user.FieldID, user.FieldHandle).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read handles: %w", err)
	}
	names := make(map[int64]string, len(list))
	for _, u := range list {
		names[u.ID] = u.Handle
	}
	handles := make([]Handles, len(entries))
	for i, e := range entries {
		id := users[subject{e.SubjectKind, e.SubjectID}]
		if e.SubjectKind == auditentry.SubjectKindUser {
			id = e.SubjectID
		}
		handles[i] = Handles{names[e.ActorID], names[id]}
	}
	return handles, nil
}
