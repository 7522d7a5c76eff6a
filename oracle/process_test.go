package oracle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/redis/go-redis/v9"

	"tideline/internal/batch"
	"tideline/queue"
	"tideline/workers"
)

// life is the lifetime of one worker process. The contexts of the process carry it, also after they
// have ended.
type life struct {
	dead    chan struct{}
	stop    context.CancelFunc
	ended   chan struct{}
	stalled atomic.Bool // the process sends no heartbeat and takes no job

	mu sync.Mutex
	// taken maps each job stream entry that the process took to its job, until the process hands
	// the entry back or leaves the job to another process.
	taken map[string]int64
}

func (l *life) take(stream string, entries []redis.XMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		l.taken[stream+e.ID], _ = strconv.ParseInt(fmt.Sprint(e.Values["id"]), 10, 64)
	}
}

// giveBack removes from taken the entries that the command takes out of a job stream, if the
// command is that script. Its arguments are the stream, the known set, the group, and for each job
// the id, the entry of a successor, and a count followed by the entries.
func (l *life) giveBack(script []any) {
	if len(script) < 7 || script[5] != any("w") || !strings.HasPrefix(fmt.Sprint(script[3]), "q:{") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := script[6:]; len(rest) > 0; {
		n := 3 + rest[2].(int)
		for _, id := range rest[3:n] {
			delete(l.taken, fmt.Sprint(script[3], id))
		}
		rest = rest[n:]
	}
}

// leave removes the job of an attempt that has ended.
func (l *life) leave(r queue.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.taken, func(_ string, job int64) bool { return job == r.Job })
}

func (l *life) has() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.taken)
}

func (l *life) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.taken) > 0
}

type lifeKey struct{}

func lifeOf(ctx context.Context) *life {
	l, _ := ctx.Value(lifeKey{}).(*life)
	return l
}

var errDead = errors.New("this process is dead")

// alive returns an error when the process of ctx has been killed.
func alive(ctx context.Context) error {
	if l := lifeOf(ctx); l != nil {
		select {
		case <-l.dead:
			return errDead
		default:
		}
	}
	return nil
}

// start starts a worker process.
func (e *engine) start() *life {
	l := &life{dead: make(chan struct{}), ended: make(chan struct{}), taken: map[string]int64{}}
	ctx, stop := context.WithCancel(context.WithValue(context.WithoutCancel(e.ctx), lifeKey{}, l))
	l.stop = stop
	cfg := queueConfig
	cfg.Now, cfg.Observe = e.now, l.leave
	q, err := queue.New(e.db, e.s.Redis, cfg)
	e.must(err)
	w := e.back.WorkersConfig()
	w.Queue = q
	// Many follower pages, with a checkpoint after each.
	w.PageSize, w.PartSize, w.KeepEvery, w.TrimEvery, w.WatchEvery = 3, 2, time.Nanosecond, 300*time.Millisecond, time.Hour
	running, err := workers.New(w)
	e.must(err)
	go func() { defer close(l.ended); _ = running.Run(ctx) }()
	return l
}

// kill ends the process like SIGKILL: none of its later commands reaches a database.
func (l *life) kill() {
	close(l.dead)
	l.stop()
}

// mortalSQL rejects the writes and commits of a killed process.
type mortalSQL struct{ dialect.Driver }

func (d mortalSQL) Exec(ctx context.Context, query string, args, v any) error {
	if err := alive(ctx); err != nil {
		return err
	}
	return d.Driver.Exec(ctx, query, args, v)
}

func (d mortalSQL) Query(ctx context.Context, query string, args, v any) error {
	if err := alive(ctx); err != nil {
		return err
	}
	return d.Driver.Query(ctx, query, args, v)
}

func (d mortalSQL) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return d.Driver.(entsql.ExecQuerier).QueryContext(ctx, query, args...)
}

func (d mortalSQL) Tx(ctx context.Context) (dialect.Tx, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	tx, err := d.Driver.Tx(ctx)
	if err != nil {
		return nil, err
	}
	return mortalTx{tx, tx.(entsql.ExecQuerier), ctx}, nil
}

type mortalTx struct {
	dialect.Tx
	entsql.ExecQuerier
	ctx context.Context
}

func (t mortalTx) Commit() error {
	if err := alive(t.ctx); err != nil {
		return errors.Join(err, t.Rollback())
	}
	return t.Tx.Commit()
}

// gate is a hook between worker processes and Redis.
type gate struct {
	mu     sync.Mutex
	holds  []*hold
	paused atomic.Bool // no jobs are handed out

	alone, company, stopped atomic.Int64 // accesses of one job, accesses of several jobs, and held accesses of several jobs
}

const (
	maxHolds = 3
	// maxHeld is the largest number of jobs that one hold stops.
	maxHeld = 4
)

// hold stops one job of a worker before one of its accesses to an inbox, together with the jobs
// that share the access.
type hold struct {
	after   int   // so many accesses pass first
	stalls  bool  // the whole process stalls
	caught  []any // the held jobs
	release chan struct{}
}

// arm stops jobs at an access to an inbox, after a number of other accesses. It returns false if
// too many jobs are held for the others to continue.
func (g *gate) arm(after int, stalls bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.holds) == maxHolds || stalls && slices.ContainsFunc(g.holds, func(h *hold) bool { return h.stalls }) {
		return false
	}
	g.holds = append(g.holds, &hold{after: after, stalls: stalls, release: make(chan struct{})})
	return true
}

// release lets all held jobs continue.
func (g *gate) release() {
	g.paused.Store(false)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holds {
		close(h.release)
	}
	g.holds = nil
}

// caught returns how many jobs are held, with or without a stall of their processes.
func (g *gate) caught(stalled bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	jobs := map[any]bool{} // two accesses of a job may be held
	for _, h := range g.holds {
		if h.stalls != stalled {
			continue
		}
		for _, job := range h.caught {
			jobs[job] = true
		}
	}
	return len(jobs)
}

// pass waits while the access is held. jobs are the jobs that share it.
func (g *gate) pass(l *life, jobs []any) {
	if len(jobs) > 1 {
		g.company.Add(1)
	} else {
		g.alone.Add(1)
	}
	g.mu.Lock()
	var mine *hold
	for _, h := range g.holds {
		if h.caught != nil {
			continue
		}
		if h.after--; h.after < 0 && len(jobs) <= maxHeld {
			if mine = h; len(jobs) == 0 {
				jobs = []any{h} // the access is not shared
			}
			h.caught = jobs
		}
		break
	}
	g.mu.Unlock()
	if mine != nil && len(jobs) > 1 {
		g.stopped.Add(1)
	}
	if mine == nil {
		return
	}
	if mine.stalls {
		l.stalled.Store(true)
		defer l.stalled.Store(false)
	}
	select {
	case <-mine.release:
	case <-l.dead:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.holds = slices.DeleteFunc(g.holds, func(h *hold) bool { return h == mine })
	}
}

// DialHook implements redis.Hook.
func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l := lifeOf(ctx)
		if l == nil {
			return next(ctx, cmd)
		}
		if err := alive(ctx); err != nil {
			return err
		}
		switch name := strings.ToLower(cmd.Name()); {
		case name == "xclaim":
			for l.stalled.Load() && alive(ctx) == nil { // the heartbeat comes late
				time.Sleep(time.Millisecond)
			}
		case name == "xautoclaim" && (g.paused.Load() || l.stalled.Load()):
			cmd.(*redis.XAutoClaimCmd).SetVal(nil, "0-0")
			return nil
		case name == "xreadgroup" && (g.paused.Load() || l.stalled.Load()):
			time.Sleep(5 * time.Millisecond)
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		err := next(ctx, cmd)
		switch c := cmd.(type) {
		case *redis.XStreamSliceCmd:
			for _, s := range c.Val() {
				l.take(s.Stream, s.Messages)
			}
		case *redis.XAutoClaimCmd:
			claimed, _ := c.Val()
			l.take(fmt.Sprint(c.Args()[1]), claimed)
		case *redis.Cmd:
			l.giveBack(c.Args())
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l := lifeOf(ctx)
		if l == nil {
			return next(ctx, cmds)
		}
		inbox := false
		for _, c := range cmds {
			for _, arg := range c.Args()[1:] {
				if key, ok := arg.(string); ok && strings.HasPrefix(key, "tl:{i") {
					inbox = true
				}
			}
		}
		if inbox {
			g.pass(l, batch.Sharers(ctx))
		}
		if err := alive(ctx); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// idle reports whether no job is running or waiting. It ignores held jobs, and deletions of users,
// which wait for all jobs that name the user.
func (e *engine) idle() (bool, error) {
	var rows int
	err := e.s.SQL.QueryRowContext(e.ctx, `SELECT count(*) FROM jobs WHERE NOT dead AND kind <> 'user.deleted'`).Scan(&rows)
	if err != nil {
		return false, fmt.Errorf("count jobs: %w", err)
	}
	// The job of a stalled worker is not ignored: another worker takes it over.
	if held := e.gate.caught(false); held > 0 || rows > 0 {
		return rows <= held, nil
	}
	if e.gate.caught(true) > 0 {
		return true, nil
	}
	for _, l := range e.lives {
		if l.busy() {
			return false, nil
		}
	}
	return true, nil
}

// patience bounds every wait, also on a slow machine.
const patience = 30 * time.Second

// rest waits until all jobs that are not held are done.
func (e *engine) rest() error {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		idle, err := e.idle()
		if err != nil || idle {
			return err
		}
		if time.Since(begun) > patience {
			jobs, _ := e.queue.List(e.ctx, queue.ListOptions{})
			var taken []string
			for _, l := range e.lives {
				taken = append(taken, l.has())
			}
			return fmt.Errorf("work does not come to an end: jobs %v, entries %v", jobs, taken)
		}
	}
}

// drain releases all held jobs and waits until no job is outstanding.
func (e *engine) drain() error {
	e.gate.release()
	if err := e.rest(); err != nil {
		return err
	}
	dead, err := e.queue.List(e.ctx, queue.ListOptions{Dead: true})
	if err == nil && len(dead) > 0 {
		err = fmt.Errorf("jobs were given up: %v", dead)
	}
	return err
}
