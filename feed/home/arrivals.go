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
	// lookForLate. It ignores one that is later than forgetLate, which may fail
	// again and again.
	lookForLate = 5 * time.Second
	forgetLate  = 10 * time.Minute
)

// arrivals knows which posts have arrived in the inboxes where they belong.
type arrivals struct {
	queue *queue.Queue
	log   *slog.Logger
	now   func() time.Time

	// In Unix milliseconds: when late fan-outs were last looked for, and the time
	// up to which all posts had been fanned out then.
	lookedForLate, distributed atomic.Int64
}

// graceEnd is an id. At t no post at or below it is on its way unless it is late.
func graceEnd(t time.Time) int64 { return max(ids.At(t.Add(-arrivalGrace)), 0) }

// ArrivedID is the id at or below which every post has arrived that is not late: it
// lies the arrival grace ago, or just before the oldest fan-out that is under way.
//
// Cost: none, and queue.Oldest every five seconds.
func (a *arrivals) ArrivedID(ctx context.Context) int64 {
	now := a.now()
	looked := a.lookedForLate.Load()
	if now.UnixMilli()-looked > lookForLate.Milliseconds() && a.lookedForLate.CompareAndSwap(looked, now.UnixMilli()) {
		oldest, err := a.queue.Oldest(ctx, job.PostCreated)
		switch {
		case err != nil:
			a.log.WarnContext(ctx, "late fan-outs not looked for", "error", err)
		case oldest.IsZero() || oldest.After(now):
			a.distributed.Store(now.UnixMilli())
		default:
			a.distributed.Store(oldest.UnixMilli())
		}
	}
	// A post is made a moment before its job.
	waits := time.UnixMilli(a.distributed.Load()).Add(LateAfter)
	return max(graceEnd(now.Add(-forgetLate)), min(graceEnd(now), graceEnd(waits)))
}

// MayBeLate reports whether a post that arrives now may be in the journal. It
// allows for a clock that is ahead.
func (a *arrivals) MayBeLate(post int64) bool {
	return post <= graceEnd(a.now().Add(arrivalGrace-LateAfter/2))
}
