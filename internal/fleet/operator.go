package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/process"
	"tideline/feed/moderation"
	"tideline/internal/clock"
)

// The errors of Want.
var (
	ErrNoProcess = errors.New("it has ended, or never was")
	ErrNoWorkers = errors.New("it has no workers")
	ErrGone      = errors.New("it gives no sign of life")
)

// awaitEvery is how often Await reads the rows.
const awaitEvery = 100 * time.Millisecond

// State is the state of a process.
type State string

// The states.
const (
	Running  State = "running"
	Pausing  State = "pausing"  // a pause is wanted; the process has not read that yet
	Draining State = "draining" // paused, with running jobs
	Paused   State = "paused"   // paused, without running jobs
	Resuming State = "resuming" // the end of the pause is wanted; the process has not read that yet
	Gone     State = "gone"     // no heartbeat for GoneAfter
)

// HasWorkers reports whether the process has workers.
func HasWorkers(p *ent.Process) bool { return p.Roles != server }

// Fleet gives operators access to all processes.
type Fleet struct {
	db  *ent.Client
	now func() time.Time
}

// New returns the Fleet of the processes that share the database. It uses now to decide whether a
// process is gone.
func New(db *ent.Client, now func() time.Time) *Fleet { return &Fleet{db, now} }

// List returns the processes, earliest start first.
//
// Cost: one query of all rows.
func (f *Fleet) List(ctx context.Context) ([]*ent.Process, error) {
	list, err := f.db.Process.Query().Order(process.ByStartedAt(), process.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return list, nil
}

// State returns the current state of a process.
func (f *Fleet) State(p *ent.Process) State {
	pause := p.Wanted == process.WantedPause
	switch {
	case f.now().Sub(p.SeenAt) >= GoneAfter:
		return Gone
	case pause && !p.Paused && HasWorkers(p):
		return Pausing
	case !pause && p.Paused:
		return Resuming
	case p.Paused && p.Jobs > 0:
		return Draining
	case p.Paused:
		return Paused
	default:
		return Running
	}
}

// Want pauses or resumes the workers of a process, and reports whether this is a change. A change
// is recorded in the audit log under who, whose permission the caller has checked. Errors:
// ErrNoProcess, ErrNoWorkers, ErrGone, or a note that is too long.
//
// Cost: a short transaction. The process reads the change within RenewEvery.
func (f *Fleet) Want(ctx context.Context, who moderation.Actor, id int64, wanted process.Wanted, note string) (p *ent.Process, changed bool, err error) {
	tx, err := f.db.Tx(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("begin: %w", err)
	}
	if p, changed, err = f.want(ctx, tx, who, id, wanted, note); err != nil {
		return p, false, errors.Join(err, tx.Rollback())
	}
	return p, changed, tx.Commit()
}

func (f *Fleet) want(ctx context.Context, tx *ent.Tx, who moderation.Actor, id int64, wanted process.Wanted, note string) (*ent.Process, bool, error) {
	n, err := tx.Process.Update().Where(process.ID(id), process.WantedNEQ(wanted)).SetWanted(wanted).Save(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("want of process %d: %w", id, err)
	}
	p, err := tx.Process.Get(ctx, id)
	switch {
	case ent.IsNotFound(err):
		return nil, false, fmt.Errorf("there is no process %d: %w", id, ErrNoProcess)
	case err != nil:
		return nil, false, fmt.Errorf("read process %d: %w", id, err)
	case !HasWorkers(p):
		return p, false, fmt.Errorf("process %d on %s cannot be paused: %w", id, p.Host, ErrNoWorkers)
	case f.State(p) == Gone:
		return p, false, fmt.Errorf("process %d on %s is gone: %w since %s", id, p.Host, ErrGone, p.SeenAt.UTC().Format(time.RFC3339))
	case n == 0:
		return p, false, nil
	}
	action := auditentry.ActionPAUSE_WORKERS
	if wanted == process.WantedRun {
		action = auditentry.ActionRESUME_WORKERS
	}
	return p, true, moderation.Record(ctx, tx, who, moderation.Action{Kind: action, SubjectKind: auditentry.SubjectKindProcess, Subject: id, Note: note})
}

// Await calls see with the rows of the given processes, ten times a second, until see returns true.
// Processes that have ended are missing. It returns an error of SQL, or the error of ctx if ctx
// ends first.
//
// Cost: one query by primary keys ten times a second.
func (f *Fleet) Await(ctx context.Context, ids []int64, see func([]*ent.Process) bool) error {
	for {
		list, err := f.db.Process.Query().Where(process.IDIn(ids...)).Order(process.ByStartedAt(), process.ByID()).All(ctx)
		if err != nil {
			return fmt.Errorf("read processes: %w", err)
		}
		if see(list) {
			return nil
		}
		if err := clock.Sleep(ctx, awaitEvery); err != nil {
			return err
		}
	}
}
