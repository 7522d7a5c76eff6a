package moderation

import (
	"context"
	"fmt"
	"strconv"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
)

// record adds an entry to the audit log. The database refuses to change or delete entries.
func record(ctx context.Context, tx *ent.Tx, who Actor, a auditentry.Action, kind auditentry.SubjectKind, subject int64, note string) error {
	row := tx.AuditEntry.Create()
	if who.Key != nil {
		row.SetKeyID(who.Key.ID)
	}
	err := row.SetActorID(who.ID).SetAction(a).SetSubjectKind(kind).SetSubjectID(subject).SetNote(note).Exec(ctx)
	return rows.Wrap("write the audit log", err)
}

// Record adds an entry to the audit log, in the transaction of the change that it describes. It is
// for packages that store the subject themselves. Error: BadInput, for a note that is too long.
func Record(ctx context.Context, tx *ent.Tx, who Actor, a auditentry.Action, kind auditentry.SubjectKind, subject int64, note string) error {
	note, err := noteField.Clean(note)
	if err != nil {
		return err
	}
	return record(ctx, tx, who, a, kind, subject, note)
}

// Operate writes an entry into the audit log and then calls do, which changes something outside
// SQL, such as workers or timelines. The two cannot share a transaction, and an entry for a change
// that then failed is better than a change without an entry. Errors: Unauthenticated, BadInput;
// Forbidden, if who is not an admin; the error of do.
//
// Cost: a look-up, an insert, and the cost of do.
func (m *Moderation) Operate(ctx context.Context, who Actor, a auditentry.Action, kind auditentry.SubjectKind, subject int64, note string, do func(context.Context) error) error {
	if err := m.DemandAdmin(ctx, who); err != nil {
		return err
	}
	err := rows.InTx(ctx, m.cfg.DB, func(tx *ent.Tx) error { return Record(ctx, tx, who, a, kind, subject, note) })
	if err != nil {
		return err
	}
	return do(ctx)
}

// NoteOfJobs returns the note with a prefix that names the first 20 of the jobs.
func NoteOfJobs(jobs []int64, note string) string {
	const named = 20
	text := fmt.Sprintf("%d jobs:", len(jobs))
	if len(jobs) == 1 {
		text = "1 job:"
	}
	for _, id := range jobs[:min(len(jobs), named)] {
		text += " " + strconv.FormatInt(id, 10)
	}
	if len(jobs) > named {
		text += " …"
	}
	if note != "" {
		text += "; " + note
	}
	return text
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
	return paging.Connect(w, list, func(e *ent.AuditEntry) paging.Edge[ent.AuditEntry] {
		return paging.Edge[ent.AuditEntry]{Cursor: paging.Cursor{ID: e.ID}.Encode(paging.AuditLog, 0), Node: e}
	}), nil
}
