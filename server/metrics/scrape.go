package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tideline/feed/webhook"
	"tideline/queue"
	"tideline/storage"
	"tideline/workers"
)

const (
	askEvery = time.Second     // least time between queries, however often the metrics are scraped
	askFor   = 2 * time.Second // most time for one round of queries
)

// Asked has the sources of the metrics that all processes share.
type Asked struct {
	Queue    func(context.Context) (queue.Stats, error)
	Webhooks func(context.Context) (webhook.Stats, error)
	Stores   func(context.Context) (storage.State, error)
}

// Handler serves /metrics. It queries SQL and Redis at most once a second, however often it is scraped.
// Servers query them too: if no worker is left, only servers can report that jobs wait. Values that
// cannot be read stay as they were.
func (m *Metrics) Handler(a Asked, log *slog.Logger) http.Handler {
	var mu sync.Mutex
	var asked time.Time
	parts := map[string]func(context.Context) error{
		"queue": func(ctx context.Context) error {
			now, err := a.Queue(ctx)
			if err == nil {
				m.queue(now)
			}
			return err
		},
		"webhooks": func(ctx context.Context) error {
			now, err := a.Webhooks(ctx)
			if err == nil {
				m.webhooksPending.Set(float64(now.Pending))
				m.webhooksDead.Set(float64(now.Dead))
				m.webhookOldest.Set(now.Oldest.Seconds())
			}
			return err
		},
		"stores": func(ctx context.Context) error {
			now, err := a.Stores(ctx)
			m.stores.set(now)
			return err
		},
	}
	ask := func(ctx context.Context) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) < askEvery {
			return
		}
		asked = time.Now()
		// Other scrapes wait for the answers too, so they do not end with the request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
		defer cancel()
		var all sync.WaitGroup
		for name, part := range parts {
			all.Go(func() {
				if err := part(ctx); err != nil {
					log.WarnContext(ctx, "metrics are as they were", "part", name, "error", err)
				}
			})
		}
		all.Wait()
	}
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask(r.Context())
		scrape.ServeHTTP(w, r)
	})
}

func (m *Metrics) queue(now queue.Stats) {
	m.deadJobs.Set(float64(now.Dead))
	lagging := 0.0
	for pool, of := range now.Pools {
		m.queueDepth.WithLabelValues(string(pool)).Set(float64(of.Depth))
		m.queueOldest.WithLabelValues(string(pool)).Set(of.Oldest.Seconds())
		if of.Oldest > workers.LagLimit {
			lagging = 1
		}
	}
	m.lagging.Set(lagging)
}
