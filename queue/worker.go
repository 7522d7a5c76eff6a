package queue

import (
	"context"
	"sync"
	"time"

	"tideline/internal/clock"
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
	pool     Pool
	stream   stream
	held     *heldJobs
	rows     *jobRows
	slots    *slots
	attempts sync.WaitGroup

	// Only the reader uses these.
	claimAt time.Time // when to look for jobs of dead workers next
	parked  []parked
}

func newWorker(q *Queue, p Pool, n int) *worker {
	s := q.streamOf(p)
	held := newHeldJobs(s, q.cfg)
	return &worker{Queue: q, pool: p, stream: s, held: held, rows: &jobRows{Queue: q, pool: p, beats: held.beats}, slots: newSlots(n)}
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
	heart.Go(func() { w.held.keep(beating) })
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
		w.held.abandon(storing)
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
		if trouble && clock.Sleep(ctx, troubleWait) != nil {
			return
		}
	}
}

// begin starts an attempt for each entry. It parks an entry whose owner has its full share of the
// slots.
func (w *worker) begin(ctx, attempts context.Context, entries []entry) {
	for _, e := range entries {
		owner, held := w.owner(e), w.held.adopt(e)
		switch {
		case held == nil: // this process has the job already
		case len(w.parked) < mostParked && w.slots.hasShare(owner):
			w.parked = append(w.parked, parked{e, held, owner, w.held.beats.lateBeats()})
		default:
			w.start(ctx, attempts, e, held, owner)
		}
	}
}

// start takes a free slot and starts an attempt. If ctx has ended or the process is paused, it
// hands the job back to other processes.
func (w *worker) start(ctx, attempts context.Context, e entry, held *heldJob, owner int64) {
	if ctx.Err() != nil || !w.admit() {
		w.held.handBack(context.WithoutCancel(ctx), held)
		return
	}
	w.slots.take(owner)
	w.attempts.Go(func() {
		defer w.slots.release(owner)
		defer w.underWay.Add(-1)
		w.attempt(attempts, e, held)
	})
}

func (w *worker) setUp(ctx context.Context) error {
	if err := w.stream.create(ctx); err != nil {
		return err
	}
	return w.stream.forget(ctx, time.Hour)
}

// next returns up to n entries: every ClaimIdle/6 those of dead workers, otherwise new ones. Its
// context must not end while it reads. Otherwise entries that Redis has just delivered would have
// no worker until ClaimIdle has passed.
func (w *worker) next(ctx context.Context, n int) ([]entry, error) {
	if time.Now().After(w.claimAt) {
		entries, err := w.stream.claimIdle(ctx, w.cfg.ClaimIdle, n)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		w.claimAt = time.Now().Add(w.cfg.ClaimIdle / 6)
	}
	block := readBlock
	if len(w.parked) > 0 { // parked jobs begin if nothing else is there
		block = -1
	}
	return w.stream.readNew(ctx, n, block)
}
