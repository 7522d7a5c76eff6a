package alarms

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An operator pauses all workers and forgets to resume them.
func TestWorkersForgotten(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.post(t)
	h.arrived(t, 1)
	h.try(t, fault{
		what:   "all workers are paused and forgotten",
		alerts: []string{"TidelineWorkersPaused", "TidelineNoWorker", "TidelineLagging", "TidelineCanaryLate"},
		cause:  func() { h.run(t, "workers", "pause", "--all"); h.post(t) },
		cure:   func() { h.run(t, "workers", "resume", "--all") },
	})
	h.arrived(t, 2)
}

// A job fails at its last attempt. Operations of clients fail at the same time.
func TestJobsGivenUp(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	failing := func() { _, _ = h.ben.Timeline(t.Context(), h.server) }
	h.try(t, fault{
		what:   "a table cannot be read",
		alerts: []string{"TidelineErrors", "TidelineJobsGivenUp"},
		cause: func() {
			h.post(t)
			h.arrived(t, 1)
			h.exec(t, "ALTER TABLE follows RENAME TO away")
			h.post(t)
			await(t, failing, "the fan-out fails", func() bool {
				return h.exec(t, "UPDATE jobs SET attempts = 11, due_at = now() WHERE kind = 'post.created' AND last_error <> '' AND NOT dead") > 0
			})
		},
		repeat: failing,
		cure: func() {
			h.exec(t, "ALTER TABLE away RENAME TO follows")
			require.Contains(t, h.run(t, "jobs", "list", "--dead"), "follows")
			require.Contains(t, h.run(t, "jobs", "retry"), " will be tried again")
		},
		well: func() { h.read(t) },
	})
	h.arrived(t, 2)
}

// PostgreSQL is slow: the test repeatedly locks the table follows, and every reader waits.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	h := newFixture(t, "TIDELINE_REQUEST_TIMEOUT=1m", "TIDELINE_SMALL_WORKERS=1")
	ctx, mend := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	slow := func() error {
		for ctx.Err() == nil {
			tx, err := h.stores.SQL.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return err
			}
			if _, err = tx.ExecContext(context.WithoutCancel(ctx), "LOCK TABLE follows IN ACCESS EXCLUSIVE MODE"); err == nil {
				select {
				case <-ctx.Done():
				case <-time.After(1500 * time.Millisecond):
				}
			}
			if err = errors.Join(err, tx.Rollback()); err != nil {
				return err
			}
		}
		return nil
	}
	posts := 0
	h.try(t, fault{
		what:   "PostgreSQL is slow",
		alerts: []string{"TidelineSlowRequests", "TidelineFirstFollowerLate", "TidelineLastFollowerLate"},
		cause: func() {
			h.run(t, "workers", "pause", "--all") // so that jobs accumulate
			for range 40 {
				h.post(t)
				posts++
			}
			go func() { ended <- slow() }()
			h.run(t, "workers", "resume", "--all")
		},
		repeat: func() {
			h.read(t)
			h.post(t)
			posts++
		},
		cure: func() { mend(); require.NoError(t, <-ended) },
		well: func() { h.read(t) },
	})
	h.arrived(t, posts)
}
