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

	"tideline/internal/batch"
)

const (
	// readBlock bounds how late a reader notices the end of its context, because the client does
	// not interrupt a blocking read.
	readBlock = 500 * time.Millisecond
	// troubleWait is the pause after an error of Redis or SQL.
	troubleWait = 250 * time.Millisecond
	// leaveWait is how long handlers have to return after their context has ended.
	leaveWait = time.Second
)

// worker does the jobs of one pool in this process. One reader starts attempts, at most as many at
// once as there are slots.
type worker struct {
	*Queue
	pool    Pool
	slots   slots     // one per running attempt
	claimAt time.Time // when to look for jobs of dead workers next; only the reader uses it
	beats   *heartbeat

	ends     batch.Batcher[*end]
	frees    batch.Batcher[*freed]
	attempts sync.WaitGroup
	mu       sync.Mutex
	running  map[int64]*running // by job id
	owners   map[int64]int      // number of running attempts by owner
	parked   []parked           // only the reader uses it
}

// running is an attempt in this process. Mutex worker.mu guards it.
type running struct {
	job     int64
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

func newWorker(q *Queue, p Pool, n int) *worker {
	return &worker{
		Queue: q, pool: p, slots: make(slots, n), beats: newHeartbeat(q.cfg.ClaimIdle), running: map[int64]*running{}, owners: map[int64]int{},
	}
}

// run does jobs until ctx ends, and returns when the attempts have ended or the time for them is
// over.
func (w *worker) run(ctx context.Context) {
	// The attempts must be able to store their ends after ctx has ended.
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

// read starts an attempt for each job that it reads, until ctx ends. The attempts run with the
// context attempts.
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
		if n == 0 { // parked jobs took all slots
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

// begin starts an attempt for each entry. It parks an entry whose owner has its full share of the
// slots.
func (w *worker) begin(ctx, attempts context.Context, entries []entry) {
	for _, e := range entries {
		owner, r := w.owner(e), w.adopt(e)
		switch {
		case r == nil: // the job is running here already
		case len(w.parked) < mostParked && w.hasShare(owner):
			w.parked = append(w.parked, parked{e, r, owner, w.beats.lateBeats()})
		default:
			w.start(ctx, attempts, e, r, owner)
		}
	}
}

// start takes a free slot and starts an attempt. If ctx has ended or the process is paused, it
// hands the job back to other processes.
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

// next returns up to n entries: every ClaimIdle/6 those of dead workers, otherwise new ones. Its
// context must not end while it reads. Otherwise entries that Redis has just delivered would have
// no worker until ClaimIdle has passed.
func (w *worker) next(ctx context.Context, n int) ([]entry, error) {
	if time.Now().After(w.claimAt) {
		entries, err := w.claimIdle(ctx, w.pool, n)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		w.claimAt = time.Now().Add(w.cfg.ClaimIdle / 6)
	}
	block := readBlock
	if len(w.parked) > 0 { // parked jobs begin if nothing else is there
		block = -1
	}
	return w.readNew(ctx, w.pool, n, block)
}

// adopt registers an attempt for e. It returns nil if the job is running here already, as happens
// after a wipe of Redis. The running attempt then releases e when it ends.
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

// leave stops the heartbeats of the attempt and returns its entries. Another attempt may have
// claimed them already. Otherwise they become idle, and the process that claims them reads the row.
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

// free removes the job of the attempt from the stream.
func (w *worker) free(ctx context.Context, r *running) { w.drop(ctx, r, 0) }

// handOver removes every stream entry of the attempt except the first, which belongs to the attempt
// that took the job over. The later entries are duplicates and would delay the next attempt.
func (w *worker) handOver(ctx context.Context, r *running) { w.drop(ctx, r, 1) }

// drop removes the entries of the attempt from the stream, except the first few, which belong to a
// successor. It only logs an error: another process claims the entries after ClaimIdle.
func (w *worker) drop(ctx context.Context, r *running, inherited int) {
	entries := w.leave(r)
	if len(entries) <= inherited {
		return // leave was called before
	}
	successor := strings.Join(entries[:inherited], "")
	if err := w.release(ctx, &freed{job: r.job, entries: entries[inherited:], successor: successor}); err != nil {
		w.log.WarnContext(ctx, "job stays in the stream", "job", r.job, "error", err)
	}
}

// handBack returns the job of an attempt to the stream, so that any process can do it.
func (w *worker) handBack(ctx context.Context, r *running) {
	w.free(ctx, r)
	w.requeue(ctx, r.job)
}

// requeue pushes a job that was freed, as an entry with the id alone.
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

// heartbeat keeps other processes from claiming the running jobs, as long as their steps end in
// time.
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

// alive returns the entries to send heartbeats for. If the current step of a handler exceeds
// StepLimit, alive ends the context of the handler. If the handler is still running at the next
// call, alive leaves its entries, so that another process can claim them.
func (w *worker) alive(ctx context.Context, at time.Time) (entries []string) {
	w.mu.Lock()
	var hung []*running
	for _, r := range w.running {
		switch {
		case r.stop == nil, at.Sub(*r.steps.last.Load()) < w.cfg.StepLimit: // without a handler, the queue's own timeouts apply
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
