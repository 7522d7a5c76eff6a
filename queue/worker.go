package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tideline/internal/together"
)

const (
	// readBlock bounds how late a reader notices the end of its context: the client
	// does not interrupt a blocking read.
	readBlock = 500 * time.Millisecond
	// troubleWait is the pause after an error of Redis or SQL.
	troubleWait = 250 * time.Millisecond
	// leaveWait is how long handlers get to notice that their context has ended.
	leaveWait = time.Second
)

// worker does the jobs of one pool in this process: a reader, and at most as many
// attempts at once as there are slots.
type worker struct {
	*Queue
	pool    Pool
	slots   slots     // one for each attempt that runs
	claimAt time.Time // when to look for jobs of dead workers again; only the reader uses it
	beats   *heartbeat

	ends     together.Batcher[*end]
	frees    together.Batcher[*freed]
	attempts sync.WaitGroup
	mu       sync.Mutex
	running  map[int64]*running // by the ids of the jobs
	owners   map[int64]int      // attempts that run, by the owners of the jobs
	parked   []parked           // only the reader uses it
}

// running is an attempt that this process makes. The worker's mutex guards it.
type running struct {
	job     int64
	entries []string // in the stream: the claims that are given signs of life
	steps   steps
	stop    context.CancelCauseFunc // ends the context of the handler; nil without one
	stopped bool                    // stop was called
}

// errStepLimit ends the context of a handler that does not come to the end of a step.
var errStepLimit = errors.New("a step takes too long")

// steps knows when the handler of an attempt last came to the end of a step.
type steps struct{ last atomic.Pointer[time.Time] }

// done ends a step, and begins the next.
func (s *steps) done() {
	now := time.Now()
	s.last.Store(&now)
}

func newWorker(q *Queue, p Pool, n int) *worker {
	return &worker{
		Queue: q, pool: p, slots: make(slots, n), beats: newHeartbeat(q.cfg.ClaimIdle), running: map[int64]*running{}, owners: map[int64]int{},
	}
}

// run does jobs until ctx ends and the attempts are over, or out of time.
func (w *worker) run(ctx context.Context) {
	// The end of ctx does not interrupt what the attempts have still to store.
	storing := context.WithoutCancel(ctx)
	attempts, interrupt := context.WithCancel(storing)
	defer interrupt()

	beating, stopBeating := context.WithCancel(storing)
	var heart sync.WaitGroup
	heart.Go(func() { w.heartbeat(beating) })
	defer heart.Wait()
	defer stopBeating()

	w.read(ctx, attempts)

	over := make(chan struct{})
	go func() { w.attempts.Wait(); close(over) }()
	select {
	case <-over:
		return
	case <-time.After(w.cfg.StopGrace):
	}
	interrupt()
	select {
	case <-over:
	case <-time.After(leaveWait):
		w.abandon(storing)
	}
}

// read starts an attempt for each job that it gets, until ctx ends. The attempts
// run with a context of their own.
func (w *worker) read(ctx, attempts context.Context) {
	storing := context.WithoutCancel(ctx)
	defer w.handBackParked(storing)
	setUp, trouble := false, false
	for {
		if !w.slots.wait(ctx) {
			return
		}
		if w.Paused() {
			w.handBackParked(storing)
		}
		if !w.gate.pass(ctx) {
			return
		}
		w.unpark(ctx, attempts, false)
		n := w.slots.free()
		if n == 0 { // parked jobs have taken them
			continue
		}
		var entries []entry
		var err error
		if !setUp {
			err = w.setUp(storing)
			setUp = err == nil
		}
		if err == nil {
			entries, err = w.next(storing, n)
		}
		if noGroup(err) {
			w.log.WarnContext(ctx, "Redis has lost a stream; the sweeper restores it", "pool", w.pool)
			setUp, err = false, nil
		}
		w.begin(ctx, attempts, entries)
		if len(entries) == 0 {
			w.unpark(ctx, attempts, true)
		}
		if err != nil && !trouble {
			w.log.WarnContext(ctx, "no jobs can be read", "pool", w.pool, "error", err)
		} else if err == nil && trouble {
			w.log.InfoContext(ctx, "jobs can be read again", "pool", w.pool)
		}
		trouble = err != nil
		if trouble && !pause(ctx, troubleWait) {
			return
		}
	}
}

// begin starts attempts with the entries, each with a slot, and parks those whose owners
// have their share.
func (w *worker) begin(ctx, attempts context.Context, entries []entry) {
	for _, e := range entries {
		owner, r := w.owner(e), w.adopt(e)
		switch {
		case r == nil: // it is running here already
		case len(w.parked) < mostParked && w.hasShare(owner):
			w.parked = append(w.parked, parked{e, r, owner, w.beats.lateBeats()})
		default:
			w.start(ctx, attempts, e, r, owner)
		}
	}
}

// start starts an attempt with the entry in a free slot. When ctx has ended or the process
// is paused, it hands the job to other processes.
func (w *worker) start(ctx, attempts context.Context, e entry, r *running, owner int64) {
	if ctx.Err() != nil || !w.admit() {
		w.handBack(context.WithoutCancel(ctx), r)
		return
	}
	w.slots <- struct{}{}
	w.count(owner, 1)
	w.attempts.Go(func() {
		defer func() { <-w.slots }()
		defer w.underWay.Add(-1)
		defer w.count(owner, -1)
		w.attempt(attempts, e, r)
	})
}

func (w *worker) setUp(ctx context.Context) error {
	if err := w.createGroup(ctx, w.pool); err != nil {
		return err
	}
	return w.forget(ctx, w.pool, time.Hour)
}

// next returns up to n entries: now and then those of dead workers, otherwise new
// ones. Its context must not end while it reads: entries that Redis has just
// delivered would belong to nobody until ClaimIdle has passed.
func (w *worker) next(ctx context.Context, n int) ([]entry, error) {
	if time.Now().After(w.claimAt) {
		entries, err := w.claimIdle(ctx, w.pool, n)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		w.claimAt = time.Now().Add(w.cfg.ClaimIdle / 6)
	}
	block := readBlock
	if len(w.parked) > 0 { // they begin if nothing else is there
		block = -1
	}
	return w.readNew(ctx, w.pool, n, block)
}

// adopt begins an attempt with e, or returns nil if the job runs here already, as
// after a wipe of Redis. Then the end of that attempt frees e as well.
func (w *worker) adopt(e entry) *running {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.running[e.job]
	if !found {
		r = &running{job: e.job}
		r.steps.done()
		w.running[e.job] = r
	}
	if !slices.Contains(r.entries, e.id) {
		r.entries = append(r.entries, e.id)
	}
	if found {
		return nil
	}
	return r
}

// leave gives no more signs of life for the attempt, and returns its entries. Another
// attempt may have these by now; otherwise they become idle, and bring the row.
func (w *worker) leave(r *running) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[r.job] == r {
		delete(w.running, r.job)
	}
	entries := r.entries
	r.entries = nil
	return entries
}

// free takes the job of the attempt out of the stream.
func (w *worker) free(ctx context.Context, r *running) { w.drop(ctx, r, 0) }

// bequeath leaves the first entry of the attempt to the one that has taken the job over.
// The others came later, when the job was in the stream no more: they hold up the next
// attempt.
func (w *worker) bequeath(ctx context.Context, r *running) { w.drop(ctx, r, 1) }

// drop takes the entries of the attempt out of the stream, but for the first few, which are an
// heir's. A failure is only logged: another process claims the entries after ClaimIdle.
func (w *worker) drop(ctx context.Context, r *running, inherited int) {
	entries := w.leave(r)
	if len(entries) <= inherited {
		return // left before
	}
	heir := strings.Join(entries[:inherited], "")
	if err := w.release(ctx, &freed{job: r.job, entries: entries[inherited:], heir: heir}); err != nil {
		w.log.WarnContext(ctx, "job stays in the stream", "job", r.job, "error", err)
	}
}

// handBack gives the job of an attempt to other processes.
func (w *worker) handBack(ctx context.Context, r *running) {
	w.free(ctx, r)
	w.requeue(ctx, r.job)
}

// requeue adds a job that was freed to the stream again, for any process.
func (w *worker) requeue(ctx context.Context, job int64) {
	if _, err := w.push(ctx, w.pool, entry{job: job}); err != nil {
		w.log.WarnContext(ctx, "job is left to the sweeper", "job", job, "error", err)
	}
}

// abandon hands back the jobs whose handlers do not stop.
func (w *worker) abandon(ctx context.Context) {
	w.mu.Lock()
	left := slices.Collect(maps.Values(w.running))
	w.mu.Unlock()
	for _, r := range left {
		w.log.ErrorContext(ctx, "handler ignores the stop and is left behind", "pool", w.pool, "job", r.job)
		w.handBack(ctx, r)
	}
}

// heartbeat keeps other processes from claiming the running jobs, while these come on.
func (w *worker) heartbeat(ctx context.Context) {
	for pause(ctx, w.cfg.ClaimIdle/3) {
		at := time.Now()
		ids := w.alive(ctx, at)
		if len(ids) == 0 {
			w.beats.beat(at)
			continue
		}
		err := w.beat(ctx, w.pool, ids)
		if err == nil {
			w.beats.beat(at)
		} else if !noGroup(err) {
			w.log.WarnContext(ctx, "running jobs may be claimed by others", "pool", w.pool, "error", err)
		}
	}
}

// alive returns the entries of the attempts whose step does not take too long. It ends
// the contexts of the others, and leaves those that have not ended by the next call to
// whoever claims them.
func (w *worker) alive(ctx context.Context, at time.Time) (entries []string) {
	w.mu.Lock()
	var hung []*running
	for _, r := range w.running {
		switch {
		case r.stop == nil, at.Sub(*r.steps.last.Load()) < w.cfg.StepLimit: // what the queue does itself has limits
			entries = append(entries, r.entries...)
		case r.stopped:
			hung = append(hung, r)
		default:
			r.stop(errStepLimit)
			r.stopped = true
			entries = append(entries, r.entries...)
		}
	}
	w.mu.Unlock()
	for _, r := range hung {
		w.log.ErrorContext(ctx, "handler ignores the end of its context and is left behind", "pool", w.pool, "job", r.job)
		w.leave(r)
	}
	return entries
}
