package home

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"tideline/feed/ids"
	"tideline/feed/job"
	"tideline/queue"
)

const (
	// LateAfter is the age from which a post on its way to an inbox is late.
	LateAfter = 90 * time.Second
	// arrivalGrace is the age from which all posts that are not late have arrived.
	arrivalGrace = LateAfter + 30*time.Second
	// ArrivedID looks for fan-outs that are later than the arrival grace every
	// lookForLate.
	lookForLate = 5 * time.Second
	// ForgetLate is the age from which ArrivedID ignores a fan-out, which may fail again
	// and again. Until then no client is taken to have what the fan-out may bring in time.
	ForgetLate = 10 * time.Minute
)

// arrivalTracker knows which posts have arrived in the inboxes where they belong; the others
// are on their way, or late. It looks at the fan-outs that are under way. It is safe for
// concurrent use.
type arrivalTracker struct {
	queue *queue.Queue
	log   *slog.Logger
	now   func() time.Time

	// In Unix milliseconds: when late fan-outs were last looked for, and the time up
	// to which no post was on its way then, unless it was late.
	lookedForLate, arrived atomic.Int64
	// The age of the oldest fan-out at that look, in milliseconds.
	lateBy atomic.Int64
}

// newArrivalTracker returns the tracker of the jobs in the queue; now is the clock.
func newArrivalTracker(q *queue.Queue, log *slog.Logger, now func() time.Time) *arrivalTracker {
	return &arrivalTracker{queue: q, log: log, now: now}
}

// graceEnd is an id. At that moment no post at or below it is on its way unless it is late.
func graceEnd(at time.Time) int64 { return max(ids.At(at.Add(-arrivalGrace)), 0) }

// ArrivedID is the id at or below which every post has arrived that is not late: it
// lies the arrival grace ago, or before what the oldest fan-out that is under way
// may bring. It is true of the moment of the call. So a caller asks first, and then
// reads what it takes for complete up to there: the process may be stopped between
// the two.
//
// Cost: none, and four queries by index every five seconds.
func (t *arrivalTracker) ArrivedID(ctx context.Context) int64 {
	now := t.now()
	looked := t.lookedForLate.Load()
	due := now.UnixMilli()-looked > lookForLate.Milliseconds() && t.lookedForLate.CompareAndSwap(looked, now.UnixMilli())
	if due || t.arrived.Load() == 0 { // the first callers do not wait for each other
		if arrived, late, err := t.oldestOnTheWay(ctx, now); err != nil {
			t.log.WarnContext(ctx, "late fan-outs not looked for", "error", err)
		} else {
			t.arrived.Store(arrived.UnixMilli())
			t.lateBy.Store(late.Milliseconds())
		}
	}
	arrived := time.UnixMilli(t.arrived.Load())
	return max(graceEnd(now.Add(-ForgetLate)), min(graceEnd(now), graceEnd(arrived)))
}

// LateBy is the age of the oldest fan-out that was under way when ArrivedID looked last: by
// so much posts reach timelines late.
//
// Cost: none.
func (t *arrivalTracker) LateBy() time.Duration {
	return time.Duration(t.lateBy.Load()) * time.Millisecond
}

// oldestOnTheWay returns a moment for which this holds: a post that is on its way now, and is
// not late, was made less than the arrival grace before that moment, or after it. It also
// returns the age of the oldest fan-out that is under way.
func (t *arrivalTracker) oldestOnTheWay(ctx context.Context, now time.Time) (arrived time.Time, late time.Duration, err error) {
	created, err := t.queue.Oldest(ctx, job.PostCreated)
	if err != nil {
		return time.Time{}, 0, err
	}
	changed, err := t.queue.Oldest(ctx, job.PostChanged)
	if err != nil {
		return time.Time{}, 0, err
	}
	arrived = now.Add(LateAfter)
	// A post is made a moment before it is fanned out.
	if waits := created.Add(LateAfter); !created.IsZero() && waits.Before(arrived) {
		arrived = waits
	}
	// A post that a change brings in time was made at most LateAfter before the change.
	if !changed.IsZero() && changed.Before(arrived) {
		arrived = changed
	}
	for _, began := range []time.Time{created, changed} {
		if !began.IsZero() {
			late = max(late, now.Sub(began))
		}
	}
	return arrived, late, nil
}

// MayBeLate reports whether a post that arrives now may be in the journal. It
// allows for a clock that is ahead.
func (t *arrivalTracker) MayBeLate(post int64) bool {
	return post <= graceEnd(t.now().Add(arrivalGrace-LateAfter/2))
}
