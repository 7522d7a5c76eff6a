// Package queue runs durable jobs. It hides how a job travels from the transaction that enqueues it
// to the process that does it: through a row in SQL and one Redis stream per pool. A sweeper pushes
// rows again that Redis has lost.
//
// Invariants:
//   - A job exists exactly when the transaction that enqueued it committed. It is in no stream
//     before that.
//   - The row is deleted when the job is finished, not when it is handed out. If Redis lost the
//     entry or never got it, a sweeper pushes the row again. The entry of a dead process is claimed
//     by another one after Config.ClaimIdle.
//   - A job has at most one entry in its stream, however often it is swept.
//   - A process starts each job that it reads, unless the owner of the job already has half of the
//     slots. Such a job waits behind the jobs of others (share.go).
//   - A job that keeps failing, or keeps killing its worker, is given up after Config.MaxAttempts.
//     Its row stays, dead, until an operator retries or discards it.
//
// Handlers run at least once. If the process of an attempt dies, stalls or loses Redis, another
// attempt begins, perhaps while the first is still running. A handler must therefore be idempotent.
// It should read the current state from SQL and act on that.
//
// An operator may pause a process (pause.go). A paused process takes no new jobs and finishes its
// running ones.
//
// The package does not order jobs, schedule them for a given time, or keep results or history of
// finished jobs.
package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/internal/redisclient"
	"tideline/internal/trace"
)

// Pool names a share of the workers that is reserved for one sort of job. Short jobs never wait for
// long ones, and posts never wait for many changes of relations.
type Pool string

// The pools.
const (
	Small     Pool = "small"     // ordinary jobs
	Large     Pool = "large"     // fan-outs to large audiences
	Relations Pool = "relations" // changes of a relation between two users
)

var pools = []Pool{Small, Large, Relations}

// MaxWorkers is the largest number of jobs of a pool that one process may run at once.
const MaxWorkers = 1024

// Config configures a Queue. The zero value of a field means its default.
type Config struct {
	// Pools is the number of jobs of each pool that this process runs at once, 1 to MaxWorkers. The
	// process runs no jobs of a pool that is absent.
	// Defaults to 32 of Small, 2 of Large and 4 of Relations.
	Pools map[Pool]int
	// MaxAttempts is the number of attempts after which a job is given up, at least 1.
	// Defaults to 12.
	MaxAttempts int

	// Each of the following is at least 10 ms.

	// PushTimeout bounds how long a commit waits for Redis to accept its job. After that, the
	// sweeper pushes the job. Defaults to 250 ms.
	PushTimeout time.Duration
	// Lease is how long the sweeper ignores a new row, so that the commit can push it. Defaults to
	// 5 s.
	Lease time.Duration
	// SweepEvery is the period of the sweeper. Defaults to 1 s.
	SweepEvery time.Duration
	// Resweep is how long the sweeper ignores a row after it found the row due and pushed its job. If
	// Redis is wiped in that time, the job is delayed until the sweeper finds the row again. Defaults
	// to 30 s.
	Resweep time.Duration
	// ClaimIdle is the time without a heartbeat after which another process takes over a running
	// job. A process sends three heartbeats in this time. Defaults to 30 s.
	ClaimIdle time.Duration
	// StepLimit bounds one step of a handler. A step ends when the handler calls Confirm,
	// Checkpoint or the function that GiveWay returned. If a step takes longer, the context of the
	// handler ends, at most one heartbeat late. If the handler ignores that, another process takes
	// over the job. Defaults to 1 minute.
	StepLimit time.Duration
	// StopGrace is how long handlers may continue after the context of Run has ended. Defaults to
	// 10 s.
	StopGrace time.Duration

	// Owner, if set, returns the owner of a job from its kind and payload, and 0 for a job without
	// an owner. While jobs of others wait, one owner has at most half of the slots of a pool in
	// this process.
	Owner func(kind string, payload json.RawMessage) int64
	// Observe, if set, is called after every attempt, in the goroutine of the attempt. It must
	// return quickly and be safe for concurrent use.
	Observe func(Result)
	// Tracer continues the traces that jobs carry. Optional.
	Tracer *trace.Tracer
	// Logger defaults to a logger that discards.
	Logger *slog.Logger
	// Now sets the times at which jobs are created and due. Defaults to time.Now. Claims expire by
	// the clock of Redis.
	Now func() time.Time
}

// minPeriod is the shortest duration that Config accepts. Redis counts in milliseconds, and the
// shortest period derived from a duration is a sixth of it.
const minPeriod = 10 * time.Millisecond

// withDefaults replaces zero fields by their defaults.
func (c Config) withDefaults() Config {
	if len(c.Pools) == 0 {
		c.Pools = map[Pool]int{Small: 32, Large: 2, Relations: 4}
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 12)
	c.PushTimeout = cmp.Or(c.PushTimeout, 250*time.Millisecond)
	c.Lease = cmp.Or(c.Lease, 5*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Second)
	c.Resweep = cmp.Or(c.Resweep, 30*time.Second)
	c.ClaimIdle = cmp.Or(c.ClaimIdle, 30*time.Second)
	c.StepLimit = cmp.Or(c.StepLimit, time.Minute)
	c.StopGrace = cmp.Or(c.StopGrace, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// validate returns an error that names every field that is out of bounds.
func (c Config) validate() error {
	var errs []error
	for _, p := range slices.Sorted(maps.Keys(c.Pools)) {
		if !slices.Contains(pools, p) {
			errs = append(errs, fmt.Errorf("queue: unknown pool %q: it must be one of %q", p, pools))
		}
		if n := c.Pools[p]; n < 1 || n > MaxWorkers {
			errs = append(errs, fmt.Errorf("queue: %d workers for pool %q: it must be 1 to %d", n, p, MaxWorkers))
		}
	}
	if c.MaxAttempts < 1 {
		errs = append(errs, fmt.Errorf("queue: MaxAttempts is %d: it must be at least 1", c.MaxAttempts))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"PushTimeout", c.PushTimeout}, {"Lease", c.Lease}, {"SweepEvery", c.SweepEvery}, {"Resweep", c.Resweep}, {"ClaimIdle", c.ClaimIdle},
		{"StepLimit", c.StepLimit}, {"StopGrace", c.StopGrace},
	} {
		if d.value < minPeriod {
			errs = append(errs, fmt.Errorf("queue: %s is %v: it must be at least %v", d.name, d.value, minPeriod))
		}
	}
	return errors.Join(errs...)
}

// Outcome is how an attempt ended.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"     // finished; the row is deleted, unless another attempt took the job over
	Failed   Outcome = "failed"   // will be tried again after a backoff
	Dead     Outcome = "dead"     // given up: by GiveUp or after the last attempt
	Returned Outcome = "returned" // interrupted because this process stops; the attempt does not count
	Lost     Outcome = "lost"     // ended with an error after another attempt took the job over; the job runs again from the beginning
)

// Result describes one attempt, for metrics.
type Result struct {
	Job      int64 // id of the job
	Kind     string
	Pool     Pool
	Attempt  int           // 1 is the first
	Wait     time.Duration // from Enqueue to the start of this attempt; includes earlier attempts
	Duration time.Duration // of the handler
	Outcome  Outcome
	Err      error // the error of the handler, or why the job was given up
}

// Job is a job as its handler sees it.
type Job struct {
	ID             int64
	Kind           string
	Pool           Pool
	Payload, State json.RawMessage // State: the last value stored by Checkpoint, or nil
	Attempt        int             // 1 is the first
	// Again says that an earlier attempt may have begun. It may be true for Attempt 1, because a first
	// attempt that was killed is not counted.
	Again     bool
	CreatedAt time.Time

	result any               // what HandleResult stores when the job ends; nil stores nothing
	parts  []json.RawMessage // the payloads of the jobs that replace this one when it ends

	claim    *claim
	steps    *steps
	db       *ent.Client
	priority *priority
}

// Checkpoint encodes state as JSON and stores it with the job. A later attempt finds it in State
// and can continue from there. The state is durable when Checkpoint returns nil. Checkpoint returns
// ErrClaimLost when another attempt has taken the job over; the handler should return that error.
// Checkpoint ends a step (see Config.StepLimit).
//
// Cost: one update by primary key.
func (j *Job) Checkpoint(ctx context.Context, state any) error {
	defer j.steps.done()
	raw, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("checkpoint job %d: %w", j.ID, err)
	}
	n, err := j.db.Job.Update().Where(j.own()).SetState(raw).Save(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint job %d: %w", j.ID, err)
	}
	if n == 0 {
		return fmt.Errorf("checkpoint job %d: %w", j.ID, ErrClaimLost)
	}
	j.State = raw
	return nil
}

// Handler does a job. If it returns nil, the job is finished. If it returns an error or panics, the
// job is tried again, after 1 s, 2 s, 4 s and so on up to 5 min (±25 %). GiveUp makes an error that
// is not tried again. The context ends when a step takes too long (see Config.StepLimit), and at
// the end of the grace period when the process stops. An error caused by a stop does not count as
// an attempt.
type Handler func(ctx context.Context, j *Job) error

type hopeless struct{ err error }

func (h *hopeless) Error() string { return "given up: " + h.err.Error() }
func (h *hopeless) Unwrap() error { return h.err }

// GiveUp wraps an error for a handler to return when another attempt cannot help. The job is given
// up at once. Its row stays, dead, with err, which must not be nil.
func GiveUp(err error) error { return &hopeless{err} }

type unavailable struct{ err error }

func (u *unavailable) Error() string { return u.err.Error() }
func (u *unavailable) Unwrap() error { return u.err }

// Unavailable wraps an error for a handler to return when an external system cannot be reached. The
// job is tried again, after the usual backoff or when Wake is called, and is never given up because
// of err, which must not be nil.
func Unavailable(err error) error { return &unavailable{err} }

// Queue enqueues jobs and, while Run runs, does them. Its methods are safe for concurrent use.
type Queue struct {
	db       *ent.Client
	rdb      redisclient.Client
	cfg      Config
	log      *slog.Logger
	handlers map[string]Handler
	givenUp  map[string]string                                                   // kind of a job that is given up → kind of the job enqueued then
	whenDone map[string]func(ctx context.Context, tx *ent.Tx, jobs []*Job) error // stores the results of jobs of a kind
	consumer string                                                              // names this process in the consumer groups
	running  atomic.Bool
	priority priority
	gate     gate
	underWay atomic.Int64 // running attempts
	wakes    atomic.Int64 // number of calls of Wake

	retryBase time.Duration // the first backoff
}

// New returns a queue on db and rdb. It fails when cfg is out of bounds. Set ContextTimeoutEnabled
// in the options of rdb. Without it, a Redis that hangs delays every commit that enqueues a job
// until the timeouts of the client itself.
func New(db *ent.Client, rdb redisclient.Client, cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	q := &Queue{
		db: db, rdb: rdb, cfg: cfg, log: cfg.Logger,
		handlers:  map[string]Handler{},
		givenUp:   map[string]string{},
		whenDone:  map[string]func(context.Context, *ent.Tx, []*Job) error{},
		consumer:  rand.Text(),
		retryBase: time.Second,
	}
	return q, nil
}

// Handle registers h as the handler of jobs of this kind. It must be called before Run, once per
// kind. It panics for a second handler, and while Run runs. A job whose kind has no handler ends as
// Unavailable, so that a newer process can still do it.
func (q *Queue) Handle(kind string, h Handler) {
	if q.running.Load() {
		panic("queue: Handle after Run")
	}
	if _, ok := q.handlers[kind]; ok {
		panic("queue: second handler for " + kind)
	}
	q.handlers[kind] = h
}

// HandleResult is Handle for a handler that returns a result. store stores the results of one or
// more jobs in the transaction that deletes their rows. It must not fail for
// several results if it succeeds for each alone: such a batch would end one by one every time. A nil result is not stored, and neither is the result of an attempt that has lost its
// claim.
func HandleResult[R any](q *Queue, kind string, h func(context.Context, *Job) (*R, error), store func(context.Context, *ent.Tx, []*R) error) {
	q.Handle(kind, func(ctx context.Context, j *Job) error {
		result, err := h(ctx, j)
		if result != nil {
			j.result = result
		}
		return err
	})
	q.whenDone[kind] = func(ctx context.Context, tx *ent.Tx, jobs []*Job) error {
		results := make([]*R, len(jobs))
		for i, j := range jobs {
			results[i] = j.result.(*R)
		}
		return store(ctx, tx, results)
	}
}

// WhenGivenUp registers a follow-up: when a job of the kind is given up, a job of the kind followUp with
// the same payload is enqueued in the same transaction. It must be called before Run, and panics
// while Run runs.
func (q *Queue) WhenGivenUp(kind, followUp string) {
	if q.running.Load() {
		panic("queue: WhenGivenUp after Run")
	}
	q.givenUp[kind] = followUp
}

// Run does jobs until ctx ends, then returns nil. When ctx ends, Run starts no more jobs and gives
// running handlers Config.StopGrace to finish. Then it ends their contexts and hands their jobs
// back, so that another process can do them at once. If a handler ignores the end of its context
// for another second, Run returns while the handler is still running. Errors of SQL or Redis are
// logged, and the work is tried again. Run returns an error only when it is already running.
//
// Cost: in an idle process, one blocking read of Redis twice a second for each pool, and one query
// by index for due rows every Config.SweepEvery. Each job costs one round trip and the deletion of
// its row, in addition to its handler. Jobs that end at the same time share both.
func (q *Queue) Run(ctx context.Context) error {
	if !q.running.CompareAndSwap(false, true) {
		return errors.New("queue: already running")
	}
	defer q.running.Store(false)

	var wg sync.WaitGroup
	for p, n := range q.cfg.Pools {
		wg.Go(func() { newWorker(q, p, n).run(ctx) })
	}
	wg.Go(func() { q.sweep(ctx) })
	wg.Wait()
	return nil
}

// now returns the time in UTC because SQLite compares times as text.
func (q *Queue) now() time.Time { return q.cfg.Now().UTC() }
