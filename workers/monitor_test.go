package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// The monitor also reports extra entries of an inbox, with the id that the repair command takes.
func TestMonitorLogsExtraEntries(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	a := newIdleAudience(t, s, 3, 1)
	require.NoError(t, a.Timelines.Feeds.Add(a.Ctx, timeline.Inbox(a.active[0]), 7))
	var log strings.Builder
	ctx, stop := context.WithTimeout(a.Ctx, 30*time.Second)
	defer stop()
	cfg := a.WorkersConfig()
	cfg.WatchEvery = time.Millisecond
	cfg.ObserveHealth = func(h workers.Health) {
		if h.Extra > 0 {
			stop()
		}
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w, err := workers.New(cfg)
	require.NoError(t, err)
	_ = w.Run(ctx)
	require.Contains(t, log.String(), fmt.Sprintf("verify --repair USER` mends it\" user=%d missing=[] extra=[7]", a.active[0]))
}

// Jobs wait because an operator has paused the workers, and the monitor's warning says so.
func TestMonitorSaysThatItIsPaused(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 0, 0)
		a.Queue.Pause()
		a.Post(a.author, schema.Public)
		for _, paused := range []bool{true, false} {
			var log strings.Builder
			ctx, stop := context.WithCancel(a.Ctx)
			defer stop()
			cfg := a.WorkersConfig()
			cfg.WatchEvery, cfg.LagLimit = time.Millisecond, time.Nanosecond
			cfg.ObserveHealth = func(workers.Health) { stop() } // the warning comes before it
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if !paused {
				// Another process is not paused, but has no workers for the job.
				var err error
				cfg.Queue, err = queue.New(s.DB, s.Redis, queue.Config{Pools: map[queue.Pool]int{queue.Large: 1}})
				require.NoError(t, err)
			}
			w, err := workers.New(cfg)
			require.NoError(t, err)
			require.ErrorIs(t, w.Run(ctx), context.Canceled)
			require.Regexp(t, fmt.Sprintf(`jobs wait too long" pool=small waiting=\d+ oldest=\S+ paused=%t\n`, paused), log.String())
		}
	})
}
