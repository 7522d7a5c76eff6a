package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/storage/storagetest"
)

// mortal is a process that does nothing after it is killed.
type mortal struct{ killed, over chan struct{} }

// newMortal starts the workers of a process. It calls before ahead of each pipeline that pushes a
// post or, with takes, removes one.
func newMortal(t *testing.T, a *audience, takes bool, before func(m *mortal, ctx context.Context, n int64) error) {
	opts, err := redis.ParseURL(storagetest.Config(a.Stores).RedisURL)
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	m := &mortal{make(chan struct{}), make(chan struct{})}
	rdb.AddHook(&pushHook{
		takes:  takes,
		before: func(ctx context.Context, n int64, _ string) error { return before(m, ctx, n) },
		other: func(ctx context.Context) error {
			select {
			case <-m.killed:
				return m.dead(ctx)
			default:
				return nil
			}
		},
	})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	a.work(t, rdb)
	t.Cleanup(func() { close(m.over) })
}

func (m *mortal) dead(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.over:
		return errors.New("killed")
	}
}

// die kills the process, which does not complete the current pipeline.
func (m *mortal) die(ctx context.Context) error {
	close(m.killed)
	return m.dead(context.WithoutCancel(ctx))
}

// drainButOne waits until the suspended worker's job is the only one left.
func (a *audience) drainButOne(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := a.Stores.DB.Job.Query().Count(a.Ctx)
		return err == nil && left == 1
	}, 30*time.Second, time.Millisecond)
}

// Another worker resumes the fan-out of a killed one and does not repeat its work.
func TestKilledWorkersFanOutGoesOn(t *testing.T) {
	t.Parallel()
	a := newIdleAudience(t, storagetest.Real(t), 42, 42)
	dying := make(chan struct{})
	newMortal(t, a, false, func(m *mortal, ctx context.Context, n int64) error {
		if n < 5 {
			return nil
		}
		close(dying)
		return m.die(ctx)
	})
	p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
	require.NoError(t, err)
	<-dying

	heir := &pushHook{before: func(context.Context, int64, string) error { return nil }}
	a.Stores.Redis.AddHook(heir)
	a.work(t, a.Stores.Redis)
	a.Drain()
	require.Equal(t, 42, (<-a.fanouts).Pushed)
	a.requireReached(t, p.ID)
	require.LessOrEqual(t, heir.inboxes.Load(), int64(42-4*5+5), "not all over again")
}

// A worker is suspended before it pushes a post. The post is hidden, and all jobs that follow are
// done. Then the worker continues and is killed: after some pages with a checkpoint, or after one
// page without.
func TestKilledWorkerLeavesNoHiddenPost(t *testing.T) {
	t.Parallel()
	for _, followers := range []int{5, 42} {
		for name, hide := range map[string]func(a *audience, id int64) error{
			"narrowed": func(a *audience, id int64) error {
				_, err := a.Feed.SetVisibility(a.Ctx, a.author, id, schema.Private)
				return err
			},
			"deleted": func(a *audience, id int64) error { return a.Feed.DeletePost(a.Ctx, a.author, id) },
		} {
			t.Run(fmt.Sprintf("%s, of %d", name, followers), func(t *testing.T) {
				t.Parallel()
				a := newIdleAudience(t, storagetest.Real(t), followers, followers)
				reached, goOn, dying := make(chan struct{}), make(chan struct{}), make(chan struct{})
				newMortal(t, a, false, func(m *mortal, ctx context.Context, n int64) error {
					switch n {
					case 1:
						close(reached)
						<-goOn
						if followers == 5 { // it gets this far
							close(m.killed)
							close(dying)
						}
					case 4:
						close(dying)
						return m.die(ctx)
					}
					return nil
				})
				public := schema.Public
				p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
				require.NoError(t, err)
				<-reached
				a.work(t, a.Stores.Redis)
				require.NoError(t, hide(a, p.ID))
				a.drainButOne(t)
				close(goOn)
				<-dying
				a.Drain()
				a.requireNowhere(t, p.ID)
				receipts, err := a.Stores.DB.Delivery.Query().IDs(a.Ctx)
				require.NoError(t, err)
				require.Equal(t, name == "narrowed", slices.Contains(receipts, p.ID))
			})
		}
	}
}

// A worker that hides a post is suspended, and the post is shown again. Then the worker continues,
// removes the post from some inboxes, and is killed.
func TestKilledWorkerLeavesNoHole(t *testing.T) {
	t.Parallel()
	a := newIdleAudience(t, storagetest.Real(t), 42, 42)
	reached, goOn, dying := make(chan struct{}), make(chan struct{}), make(chan struct{})
	newMortal(t, a, true, func(m *mortal, ctx context.Context, n int64) error {
		switch n {
		case 1:
			close(reached)
			<-goOn
		case 4:
			close(dying)
			return m.die(ctx)
		}
		return nil
	})
	id, _ := a.post(t)
	a.requireReached(t, id)
	_, err := a.Feed.SetVisibility(a.Ctx, a.author, id, schema.Private)
	require.NoError(t, err)
	<-reached
	a.work(t, a.Stores.Redis)
	_, err = a.Feed.SetVisibility(a.Ctx, a.author, id, schema.Public)
	require.NoError(t, err)
	a.drainButOne(t)
	close(goOn)
	<-dying
	a.Drain()
	a.requireReached(t, id)
}
