package workers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent/delivery"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/workers"
)

// divided are audiences whose fan-outs are divided: one for each way to assign followers to parts,
// and two more walks of the follower scan.
var divided = []struct {
	name                      string
	followers, active, others int
}{
	{"few are active", 440, 20, 0},
	{"some are active", 84, 20, 0},
	{"all are active", 42, 42, 0},
	{"many others are active", 45, 45, 200},
}

// embedded is storagetest.Each with the embedded engines only.
func embedded(t *testing.T, do func(t *testing.T, s *storage.Stores)) { do(t, storagetest.Embedded(t)) }

// eachDivided tests the first few audiences on the engines.
func eachDivided(t *testing.T, first int, engines func(*testing.T, func(*testing.T, *storage.Stores)), do func(t *testing.T, a *audience, hook *pushHook)) {
	for _, c := range divided[:first] {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			engines(t, func(t *testing.T, s *storage.Stores) {
				// Even on a busy machine a job is taken at once and keeps its worker: a second
				// attempt is not divided.
				a := newIdleAudienceOf(t, s, c.followers, c.active, queue.Config{PushTimeout: time.Minute, Lease: time.Minute})
				a.claimIdle = time.Minute
				a.othersRead(t, c.others)
				a.partSize = 6
				hook := &pushHook{before: func(context.Context, int64, string) error { return nil }}
				s.Redis.AddHook(hook)
				do(t, a, hook)
			})
		})
	}
}

// reports are the reports of a fan-out and its parts.
func (a *audience) reports(t *testing.T) (whole workers.FanOutReport, pushed int) {
	t.Helper()
	a.Drain()
	parts := map[int]bool{}
	for first := true; first || len(parts) < whole.Parts; first = false {
		f := <-a.fanouts
		pushed += f.Pushed
		if f.Part == 0 {
			whole = f
		} else {
			parts[f.Part] = true
		}
	}
	require.Empty(t, a.fanouts)
	return whole, pushed
}

// A divided fan-out reaches everybody once in each walk of the follower scan, and its receipt
// covers all parts. The same holds for changes of the post.
func TestDividedFanOutReachesEverybody(t *testing.T) {
	t.Parallel()
	eachDivided(t, 4, storagetest.Each, func(t *testing.T, a *audience, hook *pushHook) {
		a.work(t, a.Stores.Redis)
		a.work(t, a.Stores.Redis)
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
		require.NoError(t, err)
		whole, pushed := a.reports(t)
		a.requireReached(t, p.ID)
		require.GreaterOrEqual(t, whole.Parts, 2)
		require.GreaterOrEqual(t, pushed, len(a.active))
		require.LessOrEqual(t, pushed, len(a.active)+2, "those who read within the last minutes are reached again")
		require.GreaterOrEqual(t, hook.inboxes.Load(), int64(pushed))
		require.LessOrEqual(t, hook.inboxes.Load(), int64(pushed+10), "the most recently active come first, and in their turn")
		d, err := a.Stores.DB.Delivery.Get(a.Ctx, p.ID)
		require.NoError(t, err)
		require.Equal(t, [4]any{pushed, 0, whole.Followers - pushed, true}, [4]any{d.Pushed, d.Pulled, d.Skipped, d.Done})
		require.LessOrEqual(t, d.FirstLag, d.MedianLag)
		require.LessOrEqual(t, d.MedianLag, d.LastLag)

		for _, v := range []schema.Visibility{schema.Private, schema.Followers} {
			_, err = a.Feed.SetVisibility(a.Ctx, a.author, p.ID, v)
			require.NoError(t, err)
			a.reports(t)
			if v == schema.Private {
				a.requireNowhere(t, p.ID)
			} else {
				a.requireReached(t, p.ID)
			}
		}
		require.NoError(t, a.Feed.DeletePost(a.Ctx, a.author, p.ID))
		a.reports(t)
		a.requireNowhere(t, p.ID)
		require.Zero(t, a.Stores.DB.Delivery.Query().Where(delivery.ID(p.ID)).CountX(a.Ctx))
	})
}

// A part that fails resumes where it was, and no other part is repeated. A waiting part can be done
// by any process, even if the process that divided the fan-out is gone.
func TestPartOfAFanOutIsDoneAgain(t *testing.T) {
	t.Parallel()
	eachDivided(t, 2, embedded, func(t *testing.T, a *audience, hook *pushHook) {
		hook.before = func(_ context.Context, n int64, _ string) error {
			if n == 3 {
				return errors.New("the worker fails here")
			}
			return nil
		}
		a.work(t, a.Stores.Redis)
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
		require.NoError(t, err)
		_, pushed := a.reports(t)
		a.requireReached(t, p.ID)
		require.LessOrEqual(t, hook.inboxes.Load(), int64(len(a.active)+20), "not all over again")
		d, err := a.Stores.DB.Delivery.Get(a.Ctx, p.ID)
		require.NoError(t, err)
		require.Equal(t, [2]any{pushed, true}, [2]any{d.Pushed, d.Done})
	})
}

// Each part checks for itself, and finds a change that happens while it is about to push.
func TestPartsFindWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(a *audience, post int64) error{
		"narrowing": func(a *audience, post int64) error {
			_, err := a.Feed.SetVisibility(a.Ctx, a.author, post, schema.Private)
			return err
		},
		"delete": func(a *audience, post int64) error { return a.Feed.DeletePost(a.Ctx, a.author, post) },
		"blocks": func(a *audience, _ int64) error {
			var err error
			for _, user := range a.active {
				_, blocked := a.Feed.Block(a.Ctx, a.author, user)
				err = errors.Join(err, blocked)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDivided(t, 2, embedded, func(t *testing.T, a *audience, hook *pushHook) {
				hook.before = func(_ context.Context, n int64, _ string) error {
					if n != 3 {
						return nil
					}
					post, err := a.Stores.DB.Post.Query().Only(a.Ctx)
					if err == nil {
						err = meanwhile(a, post.ID)
					}
					assert.Eventually(t, func() bool { // the part is the only one left
						left, err := a.Stores.DB.Job.Query().Count(a.Ctx)
						return err == nil && left == 1
					}, time.Minute, time.Millisecond)
					return err
				}
				a.work(t, a.Stores.Redis)
				a.work(t, a.Stores.Redis)
				p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
				require.NoError(t, err)
				a.Drain()
				a.requireNowhere(t, p.ID)
			})
		})
	}
}

// A fan-out is divided only if nothing may have been done before and everybody is reached.
func TestSecondAttemptIsNotDivided(t *testing.T) {
	t.Parallel()
	eachDivided(t, 2, embedded, func(t *testing.T, a *audience, hook *pushHook) {
		hook.before = func(_ context.Context, n int64, _ string) error {
			if n == 1 {
				return errors.New("the worker fails here")
			}
			return nil
		}
		a.work(t, a.Stores.Redis)
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
		require.NoError(t, err)
		whole, pushed := a.reports(t)
		require.Zero(t, whole.Parts)
		require.Equal(t, len(a.active), pushed, fmt.Sprint(whole))
		a.requireReached(t, p.ID)
	})
}
