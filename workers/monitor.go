package workers

import (
	"context"
	"time"
)

// Health is the result of one period of the monitor.
type Health struct {
	// Sampled is how many timelines were compared with SQL. Missing is how many entries they
	// lacked, and Extra how many they had in excess.
	Sampled, Missing, Extra int
}

// LagLimit is the default of Config.LagLimit.
const LagLimit = 30 * time.Second

// sample is how many timelines of active users are compared with SQL in each period.
const sample = 3

// auditGrace is the age from which a post counts as missing. A younger post may still be in flight.
const auditGrace = time.Minute

// watch logs a warning while jobs wait longer than LagLimit or are dead, and while timelines differ
// from SQL. Metrics report the same figures. A paused process also warns, and the warning says that
// it is paused.
func (w *Workers) watch(ctx context.Context) {
	w.watchQueue(ctx)
	w.ObserveHealth(w.watchTimelines(ctx))
}

func (w *Workers) watchQueue(ctx context.Context) {
	stats, err := w.Queue.Stats(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "queue not inspected", "error", err)
		return
	}
	for pool, s := range stats.Pools {
		if s.Oldest > w.LagLimit {
			w.Logger.WarnContext(ctx, "jobs wait too long", "pool", pool, "waiting", s.Depth, "oldest", s.Oldest, "paused", w.Queue.Paused())
		}
	}
	if stats.Dead > 0 {
		w.Logger.WarnContext(ctx, "jobs were given up; see `tideline jobs list`", "dead", stats.Dead)
	}
}

// watchTimelines compares the timelines of a few active users with SQL.
func (w *Workers) watchTimelines(ctx context.Context) (h Health) {
	users, err := w.Timelines.Active.Sample(ctx, sample)
	if err != nil {
		return h // the error of Redis is already in the log
	}
	for _, user := range users {
		d, err := w.audit.Verify(ctx, user, auditGrace)
		if err != nil {
			w.Logger.WarnContext(ctx, "timeline not compared with SQL", "user", user, "error", err)
			continue
		}
		h.Sampled, h.Missing, h.Extra = h.Sampled+1, h.Missing+len(d.Missing), h.Extra+len(d.Extra)
		if len(d.Missing)+len(d.Extra) > 0 {
			w.Logger.WarnContext(ctx, "timeline differs from SQL; `tideline feeds verify --repair USER` mends it",
				"user", user, "missing", d.Missing, "extra", d.Extra)
		}
	}
	return h
}
