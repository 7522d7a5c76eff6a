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
	// coalesceAfter is the age from which a job is assumed to have others behind it.
	coalesceAfter = time.Second
	// coalesceFor is how long the result of one query is used. The result stays valid, because its
	// changes were committed before the query.
	coalesceFor = time.Second
	// coalesceMost is how many jobs one query reads.
	coalesceMost = 1000
)

// coalescer finds waiting jobs that change the same relation. A process has one coalescer.
//
// A user who follows and unfollows another user a hundred times creates a hundred jobs for the same
// two inboxes. Each job brings the inboxes in line with the relation as it is now. This covers all
// changes that were committed before, so their jobs only need to be marked as done.
type coalescer struct {
	db  *ent.Client
	now func() time.Time

	mu      sync.Mutex
	looked  time.Time            // when the last query began
	changes map[[2]int64][]int64 // the change numbers of relations with several waiting jobs, by the ordered pair of users
}

// newCoalescer returns a coalescer that reads the jobs in db. It uses now to compute their age.
func newCoalescer(db *ent.Client, now func() time.Time) *coalescer {
	return &coalescer{db: db, now: now}
}

// with returns the numbers of other changes of the relation between the same two users. All of them
// were committed before the call. The result may be incomplete: with reads the 1,000 oldest jobs,
// and only if j has waited for a second.
//
// Cost: none for a job that has not waited, otherwise one indexed query a second for all jobs.
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
		if found, err := w.look(ctx); err == nil { // after an error, the last result is used: it stays valid
			changes = found
			w.mu.Lock()
			w.changes = found
			w.mu.Unlock()
		}
	}
	others := slices.Clone(changes[userPair(r)])
	return slices.DeleteFunc(others, func(change int64) bool { return change == r.Change })
}

// look reads the oldest jobs and groups their changes by the pair of users.
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

// userPair returns the two users in ascending order. The direction of the relation does not matter.
func userPair(r job.Relation) [2]int64 {
	p := r.Users
	slices.Sort(p[:])
	return p
}
