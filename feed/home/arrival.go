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
	// LateAfter is the age at which a post that has not reached an inbox counts as late.
	LateAfter = 90 * time.Second
	// arrivalGrace is the age at which every post has reached its inboxes, unless it is late.
	arrivalGrace = LateAfter + 30*time.Second
	// lookForLate is how often ArrivedID looks for unfinished fan-outs.
	lookForLate = 5 * time.Second
	// ForgetLate is the age at which ArrivedID ignores a fan-out, which may fail again and again.
	// Until then no client is assumed to have the posts that the fan-out may still bring in time.
	ForgetLate = 10 * time.Minute
)

// Arrivals tells which posts have arrived in their inboxes. The others are in flight, or
// late. It looks at the unfinished fan-outs in the queue. It is safe for concurrent use.
type Arrivals struct {
	queue *queue.Queue
	log   *slog.Logger
	now   func() time.Time

	// In Unix milliseconds: when unfinished fan-outs were last looked for, and the time that
	// oldestInFlight returned then.
	lookedForLate, arrived atomic.Int64
	// The age of the oldest unfinished fan-out at that look, in milliseconds.
	lateBy atomic.Int64
}

// graceEnd returns the id that is the arrival grace older than at. At that moment, no post at or
// below the id is in flight, unless it is late.
func graceEnd(at time.Time) int64 { return max(ids.At(at.Add(-arrivalGrace)), 0) }

// ArrivedID returns an id at or below which every post has arrived, unless it is late. The id is
// at least the arrival grace old, and lower if an unfinished fan-out may still bring older posts.
// It holds for the moment of the call. So call ArrivedID before reading the timeline: the process
// may be stopped between the two.
//
// Cost: six queries by index every five seconds, otherwise none.
func (a *Arrivals) ArrivedID(ctx context.Context) int64 {
	now := a.now()
	looked := a.lookedForLate.Load()
	due := now.UnixMilli()-looked > lookForLate.Milliseconds() && a.lookedForLate.CompareAndSwap(looked, now.UnixMilli())
	if due || a.arrived.Load() == 0 { // the first callers do not wait for each other
		if arrived, late, err := a.oldestInFlight(ctx, now); err != nil {
			a.log.WarnContext(ctx, "late fan-outs not looked for", "error", err)
		} else {
			a.arrived.Store(arrived.UnixMilli())
			a.lateBy.Store(late.Milliseconds())
		}
	}
	arrived := time.UnixMilli(a.arrived.Load())
	return max(graceEnd(now.Add(-ForgetLate)), min(graceEnd(now), graceEnd(arrived)))
}

// LateBy returns the age of the oldest fan-out that was unfinished at the last look of ArrivedID.
// Posts may reach timelines this late.
//
// Cost: none.
func (a *Arrivals) LateBy() time.Duration {
	return time.Duration(a.lateBy.Load()) * time.Millisecond
}

// oldestInFlight returns a time such that every post that is in flight now, and not late, was
// made less than the arrival grace before it, or after it. It also returns the age of the oldest
// unfinished fan-out.
func (a *Arrivals) oldestInFlight(ctx context.Context, now time.Time) (arrived time.Time, late time.Duration, err error) {
	created, err := a.queue.Oldest(ctx, job.PostCreated)
	if err != nil {
		return time.Time{}, 0, err
	}
	changed, err := a.queue.Oldest(ctx, job.PostChanged)
	if err != nil {
		return time.Time{}, 0, err
	}
	arrived = now.Add(LateAfter)
	// A post is made a moment before it is fanned out.
	if waits := created.Add(LateAfter); !created.IsZero() && waits.Before(arrived) {
		arrived = waits
	}
	// If a change brings a post in time, the post was made at most LateAfter before the change.
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

// MayBeLate reports whether a post that arrives now may be in the journal. It allows for a clock
// that is ahead.
func (a *Arrivals) MayBeLate(post int64) bool {
	return post <= graceEnd(a.now().Add(arrivalGrace-LateAfter/2))
}
