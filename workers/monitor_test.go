package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// The monitor tells of what is too much in an inbox, too, by the id that the
// command which mends it takes.
func TestMonitorLogsExtraEntries(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	a := newIdleAudience(t, s, 3, 1)
	require.NoError(t, a.Timelines.Add(a.Ctx, timeline.Inbox(a.active[0]), 7))
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
