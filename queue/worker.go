package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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
	slots   *semaphore.Weighted // one slot for each attempt that runs, or may begin with the read under way
	claimAt time.Time           // when to look for jobs of dead workers again; only the reader uses it
	pulse   *pulse

	attempts sync.WaitGroup
	mu       sync.Mutex
	entries  map[int64][]string // of each running job, by id: its entries in the stream
}

func newWorker(q *Queue, p Pool, n int) *worker {
	return &worker{
		Queue: q, pool: p, slots: semaphore.NewWeighted(int64(n)), pulse: newPulse(q.cfg.ClaimIdle), entries: map[int64][]string{},
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
	setUp, trouble := false, false
	for {
		n := w.reserve(ctx)
		if n == 0 {
			return
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
		for _, e := range entries {
			switch {
			case w.adopt(e): // it is running here already
			case ctx.Err() != nil:
				w.free(storing, e.job)
				w.requeue(storing, e.job)
			default:
				n--
				w.attempts.Go(func() {
					defer w.slots.Release(1)
					w.attempt(attempts, e)
				})
			}
		}
		w.slots.Release(int64(n))
		if err != nil && !trouble {
			w.log.WarnContext(ctx, "no jobs can be read", "pool", w.pool, "err", err)
		} else if err == nil && trouble {
			w.log.InfoContext(ctx, "jobs can be read again", "pool", w.pool)
		}
		trouble = err != nil
		if trouble && !pause(ctx, troubleWait) {
			return
		}
	}
}

// reserve waits for a free slot and takes all that are free. It returns how many
// these are, 0 when ctx has ended.
func (w *worker) reserve(ctx context.Context) int {
	if w.slots.Acquire(ctx, 1) != nil {
		return 0
	}
	n := 1
	for w.slots.TryAcquire(1) {
		n++
	}
	return n
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
	return w.readNew(ctx, w.pool, n)
}

// adopt adds e to the entries of its job, and reports whether the job runs here
// already, as after a wipe of Redis. Then the end of that attempt frees e as well.
func (w *worker) adopt(e entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids, running := w.entries[e.job]
	if !slices.Contains(ids, e.id) {
		w.entries[e.job] = append(ids, e.id)
	}
	return running
}

// free takes the job out of the stream. A failure is only logged: another process
// claims the entries after ClaimIdle.
func (w *worker) free(ctx context.Context, job int64) {
	w.mu.Lock()
	ids := w.entries[job]
	delete(w.entries, job)
	w.mu.Unlock()
	if len(ids) == 0 {
		return // abandoned before
	}
	if err := w.release(ctx, w.pool, job, ids); err != nil {
		w.log.WarnContext(ctx, "job stays in the stream", "job", job, "err", err)
	}
}

// leave forgets the entries of a job that another attempt has taken over. They are
// that attempt's, or become idle and bring the row once more.
func (w *worker) leave(job int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.entries, job)
}

// requeue adds a job that was freed to the stream again, for any process.
func (w *worker) requeue(ctx context.Context, job int64) {
	if _, err := w.push(ctx, w.pool, entry{job: job}); err != nil {
		w.log.WarnContext(ctx, "job is left to the sweeper", "job", job, "err", err)
	}
}

// abandon hands back the jobs whose handlers do not stop.
func (w *worker) abandon(ctx context.Context) {
	w.mu.Lock()
	jobs := make([]int64, 0, len(w.entries))
	for id := range w.entries {
		jobs = append(jobs, id)
	}
	w.mu.Unlock()
	for _, id := range jobs {
		w.log.ErrorContext(ctx, "handler ignores the stop and is left behind", "pool", w.pool, "job", id)
		w.free(ctx, id)
		w.requeue(ctx, id)
	}
}

// heartbeat keeps other processes from claiming the running jobs.
func (w *worker) heartbeat(ctx context.Context) {
	for pause(ctx, w.cfg.ClaimIdle/3) {
		at := time.Now()
		w.mu.Lock()
		var ids []string
		for _, of := range w.entries {
			ids = append(ids, of...)
		}
		w.mu.Unlock()
		if len(ids) == 0 {
			w.pulse.beat(at)
			continue
		}
		err := w.beat(ctx, w.pool, ids)
		if err == nil {
			w.pulse.beat(at)
		} else if !noGroup(err) {
			w.log.WarnContext(ctx, "running jobs may be claimed by others", "pool", w.pool, "err", err)
		}
	}
}
