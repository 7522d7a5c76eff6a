package batch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	var b Batcher[int]
	var batches [][]int
	began, first := make(chan struct{}), make(chan struct{})
	work := func(batch []int) {
		if batches = append(batches, batch); len(batches) == 1 {
			close(began)
			<-first
		}
	}
	var all sync.WaitGroup
	all.Go(func() { b.Do(0, 16, work) })
	<-began
	require.Equal(t, [][]int{{0}}, batches, "nobody waits for company")
	for i := range 16 + 3 {
		all.Go(func() { b.Do(i+1, 16, work) })
	}
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiting) == 16+3
	}, 10*time.Second, time.Millisecond)
	close(first)
	all.Wait()
	require.Len(t, batches, 3)
	require.Len(t, batches[1], 16)
	require.Len(t, batches[2], 3)
	require.Empty(t, b.waiting)
}

// A batch that panics does not block later batches.
func TestBatchPanics(t *testing.T) {
	t.Parallel()
	var b Batcher[int]
	require.Panics(t, func() { b.Do(1, 16, func([]int) { panic("broken") }) })
	done := false
	b.Do(2, 16, func([]int) { done = true })
	require.True(t, done)
}

// A batch that hangs delays other items by at most MaxWait.
func TestHungBatch(t *testing.T) {
	t.Parallel()
	b := Batcher[int]{MaxWait: time.Millisecond}
	began, hangs := make(chan struct{}), make(chan struct{})
	work := func(batch []int) {
		if slices.Contains(batch, 0) {
			close(began)
			<-hangs
		}
	}
	var hung sync.WaitGroup
	hung.Go(func() { b.Do(0, 16, work) })
	<-began
	for range 3 {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { b.Do(1, 16, work) })
		}
		all.Wait()
	}
	close(hangs)
	hung.Wait()
	require.Nil(t, b.leader)
	require.Empty(t, b.waiting)
}

// Each item is processed exactly once, even if MaxWait ends meanwhile.
func TestEachItemIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := Batcher[*atomic.Int64]{MaxWait: 10 * time.Microsecond}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				var done atomic.Int64
				b.Do(&done, 4, func(batch []*atomic.Int64) {
					time.Sleep(time.Duration(rand.Int64N(30)) * time.Microsecond)
					for _, one := range batch {
						one.Add(1)
					}
				})
				if !assert.Equal(t, int64(1), done.Load()) {
					return
				}
			}
		})
	}
	all.Wait()
	require.Nil(t, b.leader)
	require.Empty(t, b.waiting)
}

type ctxKey struct{}

// wire stands in for the connection of a client, and answers the commands of a test.
type wire struct {
	sizes         []int
	sent          []context.Context
	broken        error
	refused       error // error of the command "bad"
	panics        bool  // from the second call on
	began, goesOn chan struct{}
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (w *wire) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.sizes, w.sent = append(w.sizes, len(cmds)), append(w.sent, ctx)
		if len(w.sizes) == 1 {
			close(w.began)
			<-w.goesOn
		} else if w.panics {
			panic("broken")
		}
		for _, cmd := range cmds {
			if cmd.Name() == "bad" {
				cmd.SetErr(w.refused)
			}
		}
		if w.broken != nil {
			return w.broken
		}
		return w.refused // go-redis returns the first error
	}
}

// reply is an error reply of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// Pipelines that arrive while one is in flight are sent as one. Each has its own error, and a
// caller that gives up does not end the others.
func TestPipelinesGoTogether(t *testing.T) {
	t.Parallel()
	refused := reply("refused")
	w := &wire{refused: refused, began: make(chan struct{}), goesOn: make(chan struct{})}
	newClient := func() redisclient.Client {
		single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { require.NoError(t, single.Close()) })
		single.AddHook(w)
		return Client(single)
	}
	rdb, another := newClient(), newClient()
	p := NewPipelineBatcher()
	p.batcher.MaxWait = 0
	send := func(rdb redisclient.Client, ctx context.Context, names ...string) error {
		cmds, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, name := range names {
				pipe.Do(ctx, name)
			}
			return nil
		})
		require.Len(t, cmds, len(names))
		return err
	}
	share := func(ctx context.Context) context.Context { return p.Share(context.WithValue(ctx, ctxKey{}, "mine")) }
	var all sync.WaitGroup
	all.Go(func() { require.ErrorIs(t, send(rdb, share(t.Context()), "bad"), refused) })
	<-w.began
	gone, leave := context.WithCancel(t.Context())
	wait := func(n int) {
		require.Eventually(t, func() bool {
			p.batcher.mu.Lock()
			defer p.batcher.mu.Unlock()
			return len(p.batcher.waiting) == n
		}, 10*time.Second, time.Millisecond)
	}
	all.Go(func() {
		require.ErrorIs(t, send(rdb, share(gone), "a", "b"), context.Canceled, "it left before it was sent")
	})
	wait(1)
	all.Go(func() { require.ErrorIs(t, send(another, share(t.Context()), "d", "bad"), refused) })
	wait(2)
	all.Go(func() { require.ErrorIs(t, send(rdb, share(t.Context()), "c", "bad"), refused) })
	wait(3)
	all.Go(func() { require.NoError(t, send(rdb, share(t.Context()), "e")) })
	wait(4)
	leave()
	close(w.goesOn)
	all.Wait()
	require.Equal(t, []int{1, 2, 3}, w.sizes, "those of one client in one")
	require.Equal(t, "mine", w.sent[2].Value(ctxKey{}))
	require.Len(t, Sharers(w.sent[0]), 1)
	require.Len(t, Sharers(w.sent[2]), 2)
	require.Empty(t, Sharers(t.Context()))
	require.ErrorIs(t, send(rdb, t.Context(), "bad"), refused, "alone")
	require.Len(t, w.sizes, 4)
	require.NoError(t, send(rdb, share(t.Context())), "an empty one is not sent")
	require.Len(t, w.sizes, 4)
	w.broken = errors.New("the connection is closed")
	require.ErrorIs(t, send(rdb, share(t.Context()), "a"), w.broken)
	_, err := rdb.TxPipelined(share(t.Context()), func(tx redis.Pipeliner) error { return tx.Do(t.Context(), "a").Err() })
	require.ErrorIs(t, err, w.broken)
	require.Equal(t, 3, w.sizes[len(w.sizes)-1], "a transaction goes as it is")
}

// If the client panics, no caller gets an answer that Redis never gave.
func TestPanicIsNoAnswer(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close()
	w := &wire{began: make(chan struct{}), goesOn: make(chan struct{})}
	single.AddHook(w)
	p, rdb := NewPipelineBatcher(), Client(single)
	p.batcher.MaxWait = 0
	var all sync.WaitGroup
	all.Go(func() {
		_, err := rdb.Pipelined(p.Share(t.Context()), func(pipe redis.Pipeliner) error { return pipe.Ping(t.Context()).Err() })
		assert.NoError(t, err)
	})
	<-w.began
	var panicked atomic.Int64
	for i := range 2 {
		all.Go(func() {
			pipe := rdb.Pipeline()
			answer := pipe.ZRange(t.Context(), "key", 0, -1)
			defer func() {
				if recover() != nil {
					panicked.Add(1)
				}
				assert.ErrorIs(t, answer.Err(), errNotSent)
			}()
			_, err := pipe.Exec(p.Share(t.Context()))
			assert.ErrorIs(t, err, errNotSent)
		})
		require.Eventually(t, func() bool {
			p.batcher.mu.Lock()
			defer p.batcher.mu.Unlock()
			return len(p.batcher.waiting) == i+1
		}, 10*time.Second, time.Millisecond)
	}
	w.panics = true
	close(w.goesOn)
	all.Wait()
	require.Equal(t, int64(1), panicked.Load())
}

func TestClusterSharesNothing(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	require.Same(t, cluster, Client(cluster))
}

func TestContextEndsWithTheLast(t *testing.T) {
	t.Parallel()
	a, endA := context.WithCancel(t.Context())
	b, endB := context.WithCancel(t.Context())
	ctx, stop := Context([]context.Context{a, b})
	defer stop()
	endA()
	require.NoError(t, ctx.Err())
	endB()
	<-ctx.Done()
	require.Equal(t, context.Canceled, context.Cause(ctx))
}

func TestLastDeadlineCounts(t *testing.T) {
	t.Parallel()
	soon, late := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	a, endA := context.WithDeadline(t.Context(), late)
	defer endA()
	b, endB := context.WithDeadline(t.Context(), soon)
	defer endB()
	ctx, stop := Context([]context.Context{a, b})
	defer stop()
	got, _ := ctx.Deadline()
	require.True(t, got.Equal(late))
	ctx, stop = Context([]context.Context{a, t.Context(), b})
	defer stop()
	_, limited := ctx.Deadline()
	require.False(t, limited)
}
