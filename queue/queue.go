// Package queue runs durable jobs. It hides how a job gets from the transaction
// that causes it to the process that does it: a row in SQL, a Redis stream per
// pool, a sweeper that puts back what Redis has lost.
//
// What holds:
//   - A job exists exactly when the transaction that enqueued it committed, and is in no stream
//     before that.
//   - Its row is deleted when the job is finished, not when it is handed out. A wiped Redis, a
//     killed process or a push that never came loses nothing: a sweeper adds the row again.
//   - A row is in its stream once, however often it is swept: a backlog is not multiplied.
//   - A process starts what it reads, but for jobs whose owner has half of the slots: these wait
//     behind those of others (share.go).
//   - A job that keeps failing, or keeps taking its worker down, is given up after
//     Config.MaxAttempts and waits as a dead row for an operator.
//
// Handlers run at least once: an attempt whose process dies, stalls or loses Redis is made again,
// perhaps while the first is still running. A handler must therefore be idempotent, and should
// re-read the truth and act on that.
//
// An operator may pause a process (pause.go): it takes no new job, and finishes its own.
//
// It does not order jobs, run them at given times, or keep the results or the
// history of finished ones.
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

	"github.com/redis/go-redis/v9"

	"tideline/ent"
	"tideline/internal/trace"
)

// Pool is a share of the workers that is reserved for jobs of one sort, so that short
// jobs never wait for long ones, nor posts for many changes of relations.
type Pool string

// The pools.
const (
	Small     Pool = "small"     // ordinary jobs
	Large     Pool = "large"     // fan-outs to large audiences
	Relations Pool = "relations" // changes of how two users stand to each other
)

var pools = []Pool{Small, Large, Relations}

// MaxWorkers is the most jobs of a pool that one process may run at once.
const MaxWorkers = 1024

// Config configures a Queue. The zero value of a field means its default.
type Config struct {
	// Pools says how many jobs of each pool run at once in this process, 1 to
	// MaxWorkers. A pool that is absent is left to other processes.
	// Defaults to 32 of Small, 2 of Large and 4 of Relations.
	Pools map[Pool]int
	// MaxAttempts is how many attempts a job gets before it is given up, at least 1.
	// Defaults to 12.
	MaxAttempts int

	// Each of the following is at least 10 ms.

	// PushTimeout is how long a commit waits for Redis to take its job. A job that Redis
	// does not take in time is left to the sweeper. Defaults to 250 ms.
	PushTimeout time.Duration
	// Lease is how long the sweeper leaves a new row to its commit's push. Defaults to 5 s.
	Lease time.Duration
	// SweepEvery is the sweeper's period. Defaults to 1 s.
	SweepEvery time.Duration
	// Resweep is how long the sweeper leaves a row alone after it has found it due.
	// It is the longest time by which a wiped Redis delays a job. Defaults to 30 s.
	Resweep time.Duration
	// ClaimIdle is the time without a heartbeat after which another process takes a
	// running job over. Heartbeats come three times as often. Defaults to 30 s.
	ClaimIdle time.Duration
	// StepLimit is how long a handler may take for one step, which ends when it calls
	// Confirm, Checkpoint or the function of GiveWay. After that, or up to a heartbeat
	// later, its context ends. If it ignores that, other processes take the job over.
	// Defaults to 1 minute.
	StepLimit time.Duration
	// StopGrace is how long handlers may go on after Run's context has ended. Defaults to 10 s.
	StopGrace time.Duration

	// Owner, if set, says whose a job is by its kind and payload, 0: nobody's. While jobs of
	// others wait, those of one owner have half of a pool's slots in this process at most.
	Owner func(kind string, payload json.RawMessage) int64
	// Observe, if set, is called after every attempt, by the goroutine that made
	// it: it must be quick and safe for concurrent use.
	Observe func(Result)
	// Tracer goes on with the journeys that jobs bring. Optional.
	Tracer *trace.Tracer
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Now tells when jobs are made and due. Defaults to time.Now. The life of claims
	// follows the clock of Redis.
	Now func() time.Time
}

// minPeriod is the shortest that a duration may be: Redis counts in milliseconds,
// and the shortest period derived from one is a sixth of it.
const minPeriod = 10 * time.Millisecond

// withDefaults fills in what is zero.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// validate names everything that is out of bounds.
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
	Done     Outcome = "done"     // finished; the row is deleted, unless the job was taken over
	Failed   Outcome = "failed"   // to be tried again after a backoff
	Dead     Outcome = "dead"     // given up: by GiveUp or after the last attempt
	Returned Outcome = "returned" // interrupted by the stop of this process; the attempt does not count
	Lost     Outcome = "lost"     // ended with an error after another took the job over: it is done once more, from the beginning
)

// Result of one attempt, for metrics.
type Result struct {
	Job      int64 // its id
	Kind     string
	Pool     Pool
	Attempt  int           // 1 is the first
	Wait     time.Duration // from Enqueue to this start; a later attempt's includes the earlier ones
	Duration time.Duration // of the handler
	Outcome  Outcome
	Err      error // what the handler returned, or why the job was given up
}

// Job is a job in the hands of its handler.
type Job struct {
	ID             int64
	Kind           string
	Pool           Pool
	Payload, State json.RawMessage // State: what Checkpoint stored last, or nil
	Attempt        int             // 1 is the first
	Again          bool            // an attempt may have begun before; if it was the first and was killed, it is not counted
	CreatedAt      time.Time

	// Result is what the handler leaves to the function that WhenDone has set for the
	// kind; nil: nothing.
	Result any

	claim    *claim
	steps    *steps
	db       *ent.Client
	priority *priority
}

// Checkpoint stores state, encoded as JSON, with the job: a later attempt finds it in State and
// can go on from there. It is durable when Checkpoint returns nil. It fails with ErrClaimLost
// when another attempt has taken the job over: the handler should return that error. Checkpoint
// ends a step, see Config.StepLimit.
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

// Handler does a job. Nil finishes the job. After an error it is tried again, after 1 s, 2 s, 4 s
// and so on up to 5 min (±25 %), unless GiveUp made the error. A panic counts as an error. The
// context ends when a step takes too long, see Config.StepLimit, and when the process stops, after
// the grace period: a handler that returns an error because of a stop is not charged for it.
type Handler func(ctx context.Context, j *Job) error

type hopeless struct{ err error }

func (h *hopeless) Error() string { return "given up: " + h.err.Error() }
func (h *hopeless) Unwrap() error { return h.err }

// GiveUp, returned by a handler, gives the job up at once: trying again cannot
// help. The row stays, dead, with err, which must not be nil.
func GiveUp(err error) error { return &hopeless{err} }

type unavailable struct{ err error }

func (u *unavailable) Error() string { return u.err.Error() }
func (u *unavailable) Unwrap() error { return u.err }

// Unavailable, returned by a handler, says that something outside cannot be reached.
// The job is tried again, with the usual pauses or when Wake is called, for as long as
// that lasts: it is not given up for err, which must not be nil.
func Unavailable(err error) error { return &unavailable{err} }

// Queue enqueues jobs and, while Run runs, does them. Its methods are safe for
// concurrent use.
type Queue struct {
	db       *ent.Client
	rdb      redis.UniversalClient
	cfg      Config
	log      *slog.Logger
	handlers map[string]Handler
	givenUp  map[string]string // the kinds of the jobs that follow dead ones, by their kinds
	whenDone map[string]StoreResults
	consumer string // names this process in the consumer groups
	running  atomic.Bool
	priority priority
	gate     gate
	underWay atomic.Int64 // attempts
	wakes    atomic.Int64 // calls of Wake

	retryBase time.Duration // the first backoff
}

// New returns a queue on db and rdb. It fails when cfg is out of bounds. rdb should
// have ContextTimeoutEnabled set: without it, a Redis that hangs delays every
// commit that enqueues a job by the client's own time limits.
func New(db *ent.Client, rdb redis.UniversalClient, cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	q := &Queue{
		db: db, rdb: rdb, cfg: cfg, log: cfg.Logger,
		handlers:  map[string]Handler{},
		givenUp:   map[string]string{},
		whenDone:  map[string]StoreResults{},
		consumer:  rand.Text(),
		retryBase: time.Second,
	}
	return q, nil
}

// Handle makes h the handler of jobs of this kind. It must be called before
// Run, once per kind; it panics otherwise. A job of a kind that no handler knows is
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

// WhenGivenUp has a job of the kind then follow each job of this kind that is given
// up. It is enqueued in the transaction that gives the job up, and has its payload. As
// Handle, it must be called before Run.
func (q *Queue) WhenGivenUp(kind, then string) {
	if q.running.Load() {
		panic("queue: WhenGivenUp after Run")
	}
	q.givenUp[kind] = then
}

// StoreResults stores the results of jobs in the transaction in which they end.
type StoreResults func(ctx context.Context, tx *ent.Tx, results []any) error

// WhenDone has the results that handlers of this kind leave stored in the transaction that ends
// their jobs. Results of several jobs may come at once. What it stores must not conflict with
// itself: on an error the jobs end one by one, again and again. Where a job is not ended by its
// handler, because of a lost claim, the result is dropped. As Handle, it is called before Run.
func (q *Queue) WhenDone(kind string, store StoreResults) {
	if q.running.Load() {
		panic("queue: WhenDone after Run")
	}
	q.whenDone[kind] = store
}

// Run does jobs until ctx ends, then returns nil. When ctx ends it starts nothing new, and gives
// running handlers Config.StopGrace to finish. Then it ends their contexts and hands their jobs
// back, so that another process can do them at once. A handler that ignores the end of its context
// for another second is left behind, running. Errors of SQL or Redis are logged, and the work is
// tried again. Run fails only when it is already running.
//
// Cost: in an idle process, a blocking read of Redis twice a second and pool, and a look-up of the
// due rows each Config.SweepEvery, by index. For a job, one round trip and the deletion of its
// row, beside what its handler does; jobs that end at the same time share both.
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

// pause waits for d and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// now is in UTC because SQLite compares times as texts.
func (q *Queue) now() time.Time { return q.cfg.Now().UTC() }
