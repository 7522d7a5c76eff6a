package queue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tideline/internal/batch"
	"tideline/internal/clock"
)

// heldJobs has the jobs of one pool that this process has taken from the stream: running and parked
// ones. It sends heartbeats for their entries, so that no other process takes them over, and removes
// the entries when the jobs end. It is safe for concurrent use.
type heldJobs struct {
	stream    stream
	log       *slog.Logger
	claimIdle time.Duration // Config.ClaimIdle
	stepLimit time.Duration // Config.StepLimit
	beats     *heartbeat
	frees     batch.Batcher[*freed]

	mu   sync.Mutex
	jobs map[int64]*heldJob // by job id
}

// heldJob is a job that this process has taken from the stream. Mutex heldJobs.mu guards it, except
// steps.
type heldJob struct {
	id      int64
	entries []string // stream entries that the heartbeat keeps claimed
	steps   steps
	stop    context.CancelCauseFunc // ends the context of the handler; nil while no handler runs
	stopped bool                    // stop was called
}

// errStepLimit ends the context of a handler whose step takes longer than Config.StepLimit.
var errStepLimit = errors.New("a step takes too long")

// steps records when the handler of an attempt last ended a step.
type steps struct{ last atomic.Pointer[time.Time] }

// done ends a step and begins the next.
func (s *steps) done() {
	now := time.Now()
	s.last.Store(&now)
}

func newHeldJobs(s stream, cfg Config) *heldJobs {
	return &heldJobs{
		stream: s, log: cfg.Logger, claimIdle: cfg.ClaimIdle, stepLimit: cfg.StepLimit,
		beats: newHeartbeat(cfg.ClaimIdle), jobs: map[int64]*heldJob{},
	}
}

// adopt registers the job of e. It returns nil if this process has the job already, as happens after
// a wipe of Redis. The attempt that has it then releases e when it ends.
func (h *heldJobs) adopt(e entry) *heldJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	j, found := h.jobs[e.job]
	if !found {
		j = &heldJob{id: e.job}
		j.steps.done()
		h.jobs[e.job] = j
	}
	if !slices.Contains(j.entries, e.id) {
		j.entries = append(j.entries, e.id)
	}
	if found {
		return nil
	}
	return j
}

// leave stops the heartbeats of the attempt and returns its entries. Another attempt may have
// claimed them already. Otherwise they become idle, and the process that claims them reads the row.
func (h *heldJobs) leave(j *heldJob) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs[j.id] == j {
		delete(h.jobs, j.id)
	}
	entries := j.entries
	j.entries = nil
	return entries
}

// free removes the job of the attempt from the stream.
func (h *heldJobs) free(ctx context.Context, j *heldJob) { h.drop(ctx, j, 0) }

// handOver removes every stream entry of the attempt except the first, which belongs to the attempt
// that took the job over. The later entries are duplicates and would delay the next attempt.
func (h *heldJobs) handOver(ctx context.Context, j *heldJob) { h.drop(ctx, j, 1) }

// drop removes the entries of the attempt from the stream, except the first few, which belong to a
// successor. Concurrent calls share a round trip. It only logs an error: another process claims the
// entries after ClaimIdle.
func (h *heldJobs) drop(ctx context.Context, j *heldJob, inherited int) {
	entries := h.leave(j)
	if len(entries) <= inherited {
		return // leave was called before
	}
	f := &freed{job: j.id, entries: entries[inherited:], successor: strings.Join(entries[:inherited], "")}
	h.frees.Do(f, maxEnds, func(batch []*freed) {
		err := h.stream.release(ctx, batch)
		for _, f := range batch {
			f.err = err
		}
	})
	if f.err != nil {
		h.log.WarnContext(ctx, "job stays in the stream", "job", j.id, "error", f.err)
	}
}

// handBack returns the job of an attempt to the stream, so that any process can do it.
func (h *heldJobs) handBack(ctx context.Context, j *heldJob) {
	h.free(ctx, j)
	h.requeue(ctx, j.id)
}

// requeue pushes a job that was freed, as an entry with the id alone.
func (h *heldJobs) requeue(ctx context.Context, job int64) {
	if _, err := h.stream.push(ctx, entry{job: job}); err != nil {
		h.log.WarnContext(ctx, "job is left to the sweeper", "job", job, "error", err)
	}
}

// abandon hands back the jobs whose handlers do not stop.
func (h *heldJobs) abandon(ctx context.Context) {
	h.mu.Lock()
	left := slices.Collect(maps.Values(h.jobs))
	h.mu.Unlock()
	for _, j := range left {
		h.log.ErrorContext(ctx, "handler ignores the stop and is left behind", "pool", h.stream.pool, "job", j.id)
		h.handBack(ctx, j)
	}
}

// keep keeps other processes from claiming the jobs until ctx ends, as long as their steps end in
// time.
func (h *heldJobs) keep(ctx context.Context) {
	for clock.Sleep(ctx, h.claimIdle/3) == nil {
		at := time.Now()
		ids := h.alive(ctx, at)
		if len(ids) == 0 {
			h.beats.beat(at)
			continue
		}
		err := h.stream.beat(ctx, ids)
		if err == nil {
			h.beats.beat(at)
		} else if !noGroup(err) {
			h.log.WarnContext(ctx, "running jobs may be claimed by others", "pool", h.stream.pool, "error", err)
		}
	}
}

// alive returns the entries to send heartbeats for. If the current step of a handler exceeds
// StepLimit, alive ends the context of the handler. If the handler is still running at the next
// call, alive leaves its entries, so that another process can claim them.
func (h *heldJobs) alive(ctx context.Context, at time.Time) (entries []string) {
	h.mu.Lock()
	var hung []*heldJob
	for _, j := range h.jobs {
		switch {
		case j.stop == nil, at.Sub(*j.steps.last.Load()) < h.stepLimit: // without a handler, the queue's own timeouts apply
			entries = append(entries, j.entries...)
		case j.stopped:
			hung = append(hung, j)
		default:
			j.stop(errStepLimit)
			j.stopped = true
			entries = append(entries, j.entries...)
		}
	}
	h.mu.Unlock()
	for _, j := range hung {
		h.log.ErrorContext(ctx, "handler ignores the end of its context and is left behind", "pool", h.stream.pool, "job", j.id)
		h.leave(j)
	}
	return entries
}

// handle stores the function that stops the handler of the attempt, or nil when the handler has
// returned.
func (h *heldJobs) handle(j *heldJob, stop context.CancelCauseFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j.stop = stop
	j.steps.done()
}

// freed names the entries of one job to remove from the stream.
type freed struct {
	job       int64
	entries   []string
	successor string // the entry of the successor, which stays; "" if there is none
	err       error
}
