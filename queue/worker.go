package queue

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// readBlock bounds how late a reader notices the stop: the client does not
	// interrupt a blocking read.
	readBlock = 500 * time.Millisecond
	// troubleWait is the pause after an error of Redis or SQL.
	troubleWait = 250 * time.Millisecond
	// leaveWait is how long handlers get to notice that their context has ended.
	leaveWait = time.Second
)

// worker is one pool's share of this process: a reader, and at most
// cap(slots) attempts at once.
type worker struct {
	*Queue
	pool    Pool
	slots   chan struct{} // holds one per attempt running or being read for
	claimAt time.Time     // when to look for dead workers' jobs again; the reader's

	attempts sync.WaitGroup
	mu       sync.Mutex
	held     map[int64][]string // ids of running jobs → their entries in the stream
}

func newWorker(q *Queue, p Pool, n int) *worker {
	return &worker{Queue: q, pool: p, slots: make(chan struct{}, n), held: map[int64][]string{}}
}

// run works until ctx ends and the attempts are over, or out of time.
func (w *worker) run(ctx context.Context) {
	// What an attempt must still do after the stop outlives ctx.
	settle := context.WithoutCancel(ctx)
	attempts, interrupt := context.WithCancel(settle)
	defer interrupt()

	beating, stopBeating := context.WithCancel(settle)
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
		w.abandon(settle)
	}
}

// read starts an attempt per job that it gets, until ctx ends. The attempts
// run with the context given for them.
func (w *worker) read(ctx, attempts context.Context) {
	settle := context.WithoutCancel(ctx)
	setUp, trouble := false, false
	for {
		n := w.reserve(ctx)
		if n == 0 {
			return
		}
		var entries []entry
		var err error
		if !setUp {
			err = w.setUp(settle)
			setUp = err == nil
		}
		if err == nil {
			entries, err = w.next(settle, n)
		}
		if noGroup(err) {
			w.log.WarnContext(ctx, "Redis has lost a stream; the sweeper restores it", "pool", w.pool)
			setUp, err = false, nil
		}
		for _, e := range entries {
			switch {
			case w.adopt(e): // it is running here already
			case ctx.Err() != nil:
				w.free(settle, e.job)
				w.bring(settle, e.job)
			default:
				n--
				w.attempts.Go(func() {
					defer func() { <-w.slots }()
					w.attempt(attempts, e)
				})
			}
		}
		for range n {
			<-w.slots
		}
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

// reserve takes all free slots, waiting for the first; 0 when ctx has ended.
func (w *worker) reserve(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; ; n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n
		}
	}
}

func (w *worker) setUp(ctx context.Context) error {
	if err := w.createGroup(ctx, w.pool); err != nil {
		return err
	}
	return w.forget(ctx, w.pool, time.Hour)
}

// next returns up to n entries: now and then those of dead workers, else new
// ones. Its context must not end while it reads: entries on their way would
// count as delivered and be nobody's until ClaimIdle has passed.
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

// adopt notes that this process holds e and reports whether its job is running
// here already, as after a wipe of Redis: then the end of that attempt is the
// end of e as well.
func (w *worker) adopt(e entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids, running := w.held[e.job]
	if !slices.Contains(ids, e.id) {
		w.held[e.job] = append(ids, e.id)
	}
	return running
}

// free takes the job out of the stream. A failure is only logged: then its
// entries are claimed when they have idled long enough.
func (w *worker) free(ctx context.Context, job int64) {
	w.mu.Lock()
	ids := w.held[job]
	delete(w.held, job)
	w.mu.Unlock()
	if len(ids) == 0 {
		return // abandoned before
	}
	if err := w.release(ctx, w.pool, job, ids); err != nil {
		w.log.WarnContext(ctx, "job stays in the stream", "job", job, "err", err)
	}
}

// bring adds a job that was freed to the stream again, for any process.
func (w *worker) bring(ctx context.Context, job int64) {
	if _, err := w.push(ctx, w.pool, entry{job: job}); err != nil {
		w.log.WarnContext(ctx, "job is left to the sweeper", "job", job, "err", err)
	}
}

// abandon hands back the jobs whose handlers do not stop.
func (w *worker) abandon(ctx context.Context) {
	w.mu.Lock()
	jobs := make([]int64, 0, len(w.held))
	for id := range w.held {
		jobs = append(jobs, id)
	}
	w.mu.Unlock()
	for _, id := range jobs {
		w.log.ErrorContext(ctx, "handler ignores the stop and is left behind", "pool", w.pool, "job", id)
		w.free(ctx, id)
		w.bring(ctx, id)
	}
}

// heartbeat keeps the running jobs from being claimed by others.
func (w *worker) heartbeat(ctx context.Context) {
	for pause(ctx, w.cfg.ClaimIdle/3) {
		w.mu.Lock()
		var ids []string
		for _, held := range w.held {
			ids = append(ids, held...)
		}
		w.mu.Unlock()
		if len(ids) == 0 {
			continue
		}
		if err := w.beat(ctx, w.pool, ids); err != nil && !noGroup(err) {
			w.log.WarnContext(ctx, "running jobs may be claimed by others", "pool", w.pool, "err", err)
		}
	}
}
