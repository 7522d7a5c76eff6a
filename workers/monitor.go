package workers

import (
	"context"
	"time"
)

// Health is what the monitor finds in one period.
type Health struct {
	// Sampled is how many timelines were compared with SQL, Missing and Extra how
	// many entries they lacked, or had too much.
	Sampled, Missing, Extra int
}

// LagLimit is the default of Config.LagLimit.
const LagLimit = 30 * time.Second

// sample is how many active users' timelines a period compares with SQL.
const sample = 3

// auditGrace is the age from which a post counts as missing. A younger one may
// still be on its way.
const auditGrace = time.Minute

// watch warns in the log while jobs wait longer than the limit or are dead, and
// while timelines differ from SQL. The same figures are metrics. A paused process warns,
// too, and says that it is.
func (w *Workers) watch(ctx context.Context) {
	w.watchQueue(ctx)
	w.watchCanary(ctx)
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
	users, err := w.Timelines.Sample(ctx, sample)
	if err != nil {
		return h // Redis being away is in the log already
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
