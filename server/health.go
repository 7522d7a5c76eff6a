package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// health answers /livez and /readyz.
type health struct {
	checks   []check
	log      *slog.Logger
	stopping atomic.Bool // set when the process begins to stop
}

// check asks one part that the process cannot serve without.
type check struct {
	name string
	ask  func(context.Context) error
}

// checkTimeout bounds all checks of one /readyz together.
const checkTimeout = 2 * time.Second

// live serves /livez: the process answers.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"live": true})
}

// ready serves /readyz. It asks all parts at once and names those that fail; why
// they do is in the log only.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	errs := make([]error, len(h.checks))
	var asked sync.WaitGroup
	for i, c := range h.checks {
		asked.Go(func() { errs[i] = c.ask(ctx) })
	}
	asked.Wait()

	status := http.StatusOK
	results := make(map[string]string, len(h.checks)+1)
	for i, c := range h.checks {
		results[c.name] = "ok"
		if errs[i] != nil {
			results[c.name] = "failed"
			status = http.StatusServiceUnavailable
			h.log.WarnContext(ctx, "not ready", "check", c.name, "err", errs[i])
		}
	}
	if h.stopping.Load() {
		results["process"] = "stopping"
		status = http.StatusServiceUnavailable
	}
	reply(w, status, map[string]any{"ready": status == http.StatusOK, "checks": results})
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	data, _ := json.Marshal(body) // strings and booleans always marshal
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) // an error means that the client has left
}
