package workers

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"tideline/ent"
	entjob "tideline/ent/job"
	"tideline/feed/job"
	"tideline/queue"
)

const (
	// coalesceAfter is from which age a job is taken to have others behind it.
	coalesceAfter = time.Second
	// coalesceFor is how long a look at the waiting jobs is used. What it has found stays true:
	// those changes were committed before.
	coalesceFor = time.Second
	// coalesceMost is how many jobs a look reads.
	coalesceMost = 1000
)

// coalescer finds changes of the same relation among the jobs that wait. A process has one.
//
// A user who follows and unfollows another a hundred times makes a hundred jobs, and each
// would look at the same two inboxes. A job brings them in line with the relation as it is
// now: that does all changes that were committed before, and their jobs need only be told.
type coalescer struct {
	db  *ent.Client
	now func() time.Time

	mu      sync.Mutex
	looked  time.Time            // when somebody last began to look
	changes map[[2]int64][]int64 // the numbers of those that are not alone, by users in order
}

// newCoalescer returns a coalescer that reads the jobs in db, and tells their age by the clock.
func newCoalescer(db *ent.Client, now func() time.Time) *coalescer {
	return &coalescer{db: db, now: now}
}

// with returns the numbers of other changes of the same two users, all of which were
// committed before with was called. It does not find all of them: it looks at the oldest
// 1,000 jobs, and only if the job has waited for a second.
//
// Cost: nothing for a job that has not waited; else one query by index a second for all.
func (w *coalescer) with(ctx context.Context, j *queue.Job, r job.Relation) []int64 {
	now := w.now()
	if now.Sub(j.CreatedAt) < coalesceAfter {
		return nil
	}
	w.mu.Lock()
	look := now.Sub(w.looked) >= coalesceFor
	if look {
		w.looked = now
	}
	changes := w.changes
	w.mu.Unlock()
	if look {
		if found, err := w.look(ctx); err == nil { // without an answer each job does its own
			changes = found
			w.mu.Lock()
			w.changes = found
			w.mu.Unlock()
		}
	}
	others := slices.Clone(changes[userPair(r)])
	return slices.DeleteFunc(others, func(change int64) bool { return change == r.Change })
}

// look reads the oldest jobs. What two of them have in common is of the same users.
func (w *coalescer) look(ctx context.Context) (map[[2]int64][]int64, error) {
	rows, err := w.db.Job.Query().
		Where(entjob.Dead(false), entjob.Pool(string(queue.Relations)), entjob.Kind(job.RelationChanged)).
		Order(entjob.ByCreatedAt()).Limit(coalesceMost).Select(entjob.FieldPayload).All(ctx)
	if err != nil {
		return nil, err
	}
	found := map[[2]int64][]int64{}
	for _, row := range rows {
		var r job.Relation
		if err := json.Unmarshal(row.Payload, &r); err == nil {
			found[userPair(r)] = append(found[userPair(r)], r.Change)
		}
	}
	for p, changes := range found {
		if len(changes) == 1 {
			delete(found, p)
		}
	}
	return found, nil
}

// userPair is the two users in order: who changed the relation does not matter.
func userPair(r job.Relation) [2]int64 {
	p := r.Users
	slices.Sort(p[:])
	return p
}
