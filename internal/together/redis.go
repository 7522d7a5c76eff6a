package together

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxPipelines is how many pipelines are sent as one, so that none waits for long.
	maxPipelines = 32
	// Patience is for batches of round trips: many times as long as one takes.
	Patience = 25 * time.Millisecond
)

// Pipelines sends the pipelines that goroutines have for Redis at the same time as one.
type Pipelines struct{ batcher Batcher[*pipeline] }

// NewPipelines returns one for the goroutines that share it. What hangs holds up those whose
// pipelines it was sent with, and others for Patience.
func NewPipelines() *Pipelines { return &Pipelines{Batcher[*pipeline]{Patience: Patience}} }

// pipeline is one that waits to be sent.
type pipeline struct {
	ctx    context.Context
	of     *sharer
	client redis.UniversalClient
	cmds   []redis.Cmder
	err    error
}

// sharer is one whose pipelines are sent together with those of others.
type sharer struct{ all *Pipelines }

type (
	key     struct{} // of the sharer in a context
	sentKey struct{} // of the pipelines that are sent as one
)

// Share returns a context whose pipelines are sent together with those of others that
// share p, by clients that Client has returned. Transactions and single commands go alone.
// A pipeline whose context ends before it is sent is not sent. One that is sent returns when
// it has been answered, and not sooner when its context ends: its deadline counts where all
// that are sent with it have one, and then the last.
func (p *Pipelines) Share(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, &sharer{p})
}

// Sharers tells hooks of clients whose pipelines are sent with this context: it returns a
// value for each context of Share, by which that is known again. It is empty for a pipeline
// that nobody shares.
func Sharers(ctx context.Context) []any {
	batch, together := ctx.Value(sentKey{}).([]*pipeline)
	if !together {
		if s := ctx.Value(key{}); s != nil {
			return []any{s}
		}
		return nil
	}
	var all []any
	for _, p := range batch {
		if !slices.Contains(all, any(p.of)) {
			all = append(all, p.of)
		}
	}
	return all
}

// client sends pipelines together. It is no hook of go-redis: that would have to tell
// pipelines from transactions, and from the greetings of new connections, for which a
// pipeline may be waiting.
type client struct{ redis.UniversalClient }

// Client returns a client that sends together what Share says. A client of a cluster
// is returned as it is: a master that does not answer would hold up all.
func Client(rdb redis.UniversalClient) redis.UniversalClient {
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		return rdb
	}
	return client{rdb}
}

// Pipeline see redis.Cmdable.
func (c client) Pipeline() redis.Pipeliner {
	return &shared{c.UniversalClient.Pipeline(), c.UniversalClient}
}

// Pipelined see redis.Cmdable.
func (c client) Pipelined(ctx context.Context, fill func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := c.Pipeline()
	if err := fill(p); err != nil {
		return nil, err
	}
	return p.Exec(ctx)
}

// shared is a pipeline of a client that sends some together.
type shared struct {
	redis.Pipeliner
	client redis.UniversalClient
}

// Exec see redis.Pipeliner.
func (s *shared) Exec(ctx context.Context) ([]redis.Cmder, error) {
	of, _ := ctx.Value(key{}).(*sharer)
	if of == nil || s.Len() == 0 || ctx.Err() != nil {
		return s.Pipeliner.Exec(ctx)
	}
	mine := &pipeline{ctx: ctx, of: of, client: s.client, cmds: slices.Clone(s.Cmds())}
	s.Discard()
	mine.fail(errNotSent)
	of.all.batcher.Do(mine, maxPipelines, send)
	return mine.cmds, mine.err
}

// fail has the pipeline, and each of its commands, fail with an error.
func (p *pipeline) fail(err error) {
	p.err = err
	for _, cmd := range p.cmds {
		cmd.SetErr(err)
	}
}

// errNotSent is the error of a pipeline, and of its commands, until it has been sent.
var errNotSent = errors.New("the pipeline was not sent")

// send sends pipelines, those to the same client as one. One whose context has ended while
// it waited is not sent, as it would not be alone.
func send(batch []*pipeline) {
	batch = slices.DeleteFunc(slices.Clone(batch), func(p *pipeline) bool {
		err := p.ctx.Err()
		if err != nil {
			p.fail(err)
		}
		return err != nil
	})
	for len(batch) > 0 {
		same, others := []*pipeline(nil), []*pipeline(nil)
		for _, p := range batch {
			if p.client == batch[0].client {
				same = append(same, p)
			} else {
				others = append(others, p)
			}
		}
		sendOne(same)
		batch = others
	}
}

// sendOne sends the pipelines as one, and gives each its own error: the first of its
// commands, or that of the connection.
func sendOne(batch []*pipeline) {
	var contexts []context.Context
	one := batch[0].client.Pipeline()
	for _, p := range batch {
		contexts = append(contexts, p.ctx)
		for _, cmd := range p.cmds {
			cmd.SetErr(nil) // the client sets it where there is none
		}
		_ = one.BatchProcess(p.ctx, p.cmds...) // it only appends
	}
	defer func() {
		for _, p := range batch {
			if errors.Is(p.err, errNotSent) { // the client has panicked
				p.fail(errNotSent)
			}
		}
	}()
	ctx, stop := Context(contexts)
	defer stop()
	if len(batch) > 1 {
		ctx = context.WithValue(ctx, sentKey{}, batch)
	}
	_, err := one.Exec(ctx)
	var reply redis.Error
	if errors.As(err, &reply) {
		err = nil // a command's own
	}
	for _, p := range batch {
		p.err = err
		for _, cmd := range p.cmds {
			if cmd.Err() != nil {
				p.err = cmd.Err()
				break
			}
		}
	}
}

// Context returns a context for what is done for all: it has the values of the first, and
// ends when the last has ended. Stop frees what it holds.
func Context(all []context.Context) (_ context.Context, stop func()) {
	if len(all) == 1 {
		return all[0], func() {}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(all[0]))
	free := func() {}
	if last, ok := lastDeadline(all); ok {
		ctx, free = context.WithDeadline(ctx, last)
	}
	var left atomic.Int64
	left.Store(int64(len(all)))
	stops := make([]func() bool, len(all))
	for i, one := range all {
		stops[i] = context.AfterFunc(one, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(one))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		free()
		cancel(nil)
	}
}

// lastDeadline returns the last of the deadlines, if all have one.
func lastDeadline(all []context.Context) (last time.Time, ok bool) {
	for _, one := range all {
		deadline, ok := one.Deadline()
		if !ok {
			return time.Time{}, false
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return last, true
}
