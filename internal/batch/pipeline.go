package batch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/internal/redisclient"
)

const (
	// maxPipelines is the largest number of pipelines that are sent as one. The bound keeps each
	// from waiting long.
	maxPipelines = 32
	// MaxWait is the MaxWait of batches of round trips. It is many times the duration of a round
	// trip.
	MaxWait = 25 * time.Millisecond
)

// PipelineBatcher combines the Redis pipelines of concurrent goroutines into one.
type PipelineBatcher struct{ batcher Batcher[*pipeline] }

// NewPipelineBatcher returns a PipelineBatcher for the goroutines that share it. A request that hangs delays
// the pipelines in it, and others for at most MaxWait.
func NewPipelineBatcher() *PipelineBatcher {
	return &PipelineBatcher{Batcher[*pipeline]{MaxWait: MaxWait}}
}

// pipeline is a pipeline that waits to be sent.
type pipeline struct {
	ctx    context.Context
	of     *sharer
	client redisclient.Client
	cmds   []redis.Cmder
	err    error
}

// sharer identifies a context of Share.
type sharer struct{ all *PipelineBatcher }

type (
	key     struct{} // context key of a *sharer
	sentKey struct{} // context key of the []*pipeline that are sent as one
)

// Share returns a context whose pipelines are combined with those of other contexts from p. This
// applies to clients that Client returned. Transactions and single commands are sent alone. A
// pipeline whose context ends before it is sent fails. A pipeline that has been sent waits for its
// answer even if its own context ends. The combined request uses the latest deadline, and none if
// any pipeline has none.
func (p *PipelineBatcher) Share(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, &sharer{p})
}

// Sharers returns one comparable value for each context of Share whose pipelines are sent with ctx.
// Client hooks use it to attribute a request. It is empty for a pipeline outside of Share.
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

// client combines pipelines. It is not a go-redis hook: a hook would have to distinguish pipelines
// from transactions and from the handshake of a new connection, which a combined pipeline may be
// waiting for.
type client struct{ redisclient.Client }

// Client returns a client that combines pipelines as Share describes. It returns a cluster client
// unchanged, because one master that does not answer would delay all pipelines.
func Client(rdb redisclient.Client) redisclient.Client {
	if redisclient.Sharded(rdb) {
		return rdb
	}
	return client{rdb}
}

// Pipeline implements redis.Cmdable.
func (c client) Pipeline() redis.Pipeliner {
	return &shared{c.Client.Pipeline(), c.Client}
}

// Pipelined implements redis.Cmdable.
func (c client) Pipelined(ctx context.Context, fill func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := c.Pipeline()
	if err := fill(p); err != nil {
		return nil, err
	}
	return p.Exec(ctx)
}

// shared is a pipeline that may be combined with others.
type shared struct {
	redis.Pipeliner
	client redisclient.Client
}

// Exec implements redis.Pipeliner.
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

// fail sets err as the error of the pipeline and of each command.
func (p *pipeline) fail(err error) {
	p.err = err
	for _, cmd := range p.cmds {
		cmd.SetErr(err)
	}
}

// errNotSent is the error of a pipeline and its commands until it has been sent.
var errNotSent = errors.New("the pipeline was not sent")

// send sends a batch, with one request per client. Pipelines whose context has ended while they
// waited are not sent, as without a batch.
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

// sendOne sends the pipelines as one. Each gets its own error: the first error of its commands, or
// the error of the connection.
func sendOne(batch []*pipeline) {
	var contexts []context.Context
	one := batch[0].client.Pipeline()
	for _, p := range batch {
		contexts = append(contexts, p.ctx)
		for _, cmd := range p.cmds {
			cmd.SetErr(nil) // the client sets an error only where there is none
		}
		_ = one.BatchProcess(p.ctx, p.cmds...) // only appends the commands
	}
	defer func() {
		for _, p := range batch {
			if errors.Is(p.err, errNotSent) { // the client panicked
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
		err = nil // belongs to one command
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

// Context returns a context for work done for all contexts. It has the values of the first and ends
// when the last has ended. The caller must call stop to free resources.
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

// lastDeadline returns the latest deadline. ok is false if any context has none.
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
