package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tideline/feed/identity"
	"tideline/internal/clock"
	"tideline/storage"
)

// health checks the parts of the process in the background, and serves /livez and /readyz. It logs and
// measures each change of a state. A request of /readyz is answered from the last results, so requests
// cause no load on SQL or Redis.
type health struct {
	checks   []check
	log      *slog.Logger
	observe  func(check, state string, is bool)
	stopping atomic.Bool // set when the process begins to stop

	mu    sync.Mutex
	last  map[string]change // by check; no entry before the first result
	well  map[string]bool   // the checks that have been ok at least once
	asked time.Time         // when the last round ended; zero: never
}

// check is a health check of one part of the process.
type check struct {
	name string
	ask  func(context.Context) error
	// spare says that the process can serve without the part once the part has been ok. Then the part is
	// degraded, not failed. These errors always mean degraded: storage.ErrSomeAnswer, storage.ErrNoWrites,
	// storage.ErrHidesIncarnation and identity.ErrOldKeys.
	spare bool
	// means describes the consequence while the part is not ok, for /readyz and the log.
	means string
}

// state is the state of a part.
type state string

const (
	stateOK       state = "ok"
	stateDegraded state = "degraded" // some requests are slower, or fail
	stateFailed   state = "failed"
)

var states = []state{stateOK, stateDegraded, stateFailed}

// change is the state of a part and when it began.
type change struct {
	state state
	since time.Time
}

const (
	// checkTimeout bounds one round of all checks.
	checkTimeout = 2 * time.Second
	// checkEvery is the pause between rounds. checkAgain is the pause while a part is failed, so that the
	// process is soon ready again. A round takes up to checkTimeout while the first
	// connection to pub/sub, or the first fetch of an issuer's keys, has not ended.
	checkEvery = time.Second
	checkAgain = 100 * time.Millisecond
	// staleAfter is the age from which results are unknown: the process was suspended, or a check
	// neither answers nor gives up.
	staleAfter = 30 * time.Second
)

// serve registers /livez and /readyz.
func (h *health) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", h.live)
	mux.HandleFunc("GET /readyz", h.ready)
}

// versionHeader is the header of /livez with the version and commit of the process.
const versionHeader = "X-Tideline-Version"

// live serves /livez. Any answer means that the process is alive.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	build := ThisBuild()
	w.Header().Set(versionHeader, build.Version+" ("+build.Commit+")")
	reply(w, http.StatusOK, map[string]any{"live": true})
}

// ready serves /readyz. It names the degraded and failed parts and their consequences. Only the log has the
// causes. A process with a failed part is not ready.
func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	status, results := http.StatusOK, h.states()
	for _, s := range results {
		if s == string(stateFailed) || s == stopping || s == unknown {
			status = http.StatusServiceUnavailable
		}
	}
	body := map[string]any{"ready": status == http.StatusOK, "checks": results}
	means := map[string]string{}
	for _, c := range h.checks {
		if s := results[c.name]; c.means != "" && (s == string(stateDegraded) || s == string(stateFailed)) {
			means[c.name] = c.means
		}
	}
	if len(means) > 0 {
		body["means"] = means
	}
	reply(w, status, body)
}

const (
	// stopping is the state of a process that is stopping.
	stopping = "stopping"
	// unknown is the state of a process whose last results are older than staleAfter.
	unknown = "unknown"
)

// states returns the last state of each part by its name.
func (h *health) states() map[string]string {
	results := map[string]string{}
	h.mu.Lock()
	for name, c := range h.last {
		results[name] = string(c.state)
	}
	asked := h.asked
	h.mu.Unlock()
	if time.Since(asked) > staleAfter {
		results["process"] = unknown
	}
	if h.stopping.Load() {
		results["process"] = stopping
	}
	return results
}

// watch runs all checks again and again until ctx ends.
//
// Cost: each second a ping of SQL and a write to each Redis master.
func (h *health) watch(ctx context.Context) error {
	for {
		wait := checkEvery
		if slices.Contains(h.ask(ctx), stateFailed) {
			wait = checkAgain
		}
		if clock.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// ask runs all checks at once, and returns the states in the order of the checks.
func (h *health) ask(ctx context.Context) []state {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	all := make([]state, len(h.checks))
	var asked sync.WaitGroup
	for i, c := range h.checks {
		asked.Go(func() {
			err := c.ask(ctx)
			switch {
			case err == nil:
				all[i] = stateOK
			case errors.Is(err, storage.ErrSomeAnswer), errors.Is(err, storage.ErrNoWrites), errors.Is(err, storage.ErrHidesIncarnation),
				errors.Is(err, identity.ErrOldKeys), c.spare && h.wasWell(c.name):
				all[i] = stateDegraded
			default:
				all[i] = stateFailed
			}
			if !errors.Is(ctx.Err(), context.Canceled) { // unless the process ends
				h.tell(c, all[i], err)
			}
		})
	}
	asked.Wait()
	h.mu.Lock()
	h.asked = time.Now()
	h.mu.Unlock()
	return all
}

// tell logs and measures the state of a part if it has changed.
func (h *health) tell(c check, s state, err error) {
	name := c.name
	h.mu.Lock()
	defer h.mu.Unlock()
	if s == stateOK && !h.well[name] {
		if h.well == nil {
			h.well = map[string]bool{}
		}
		h.well[name] = true
	}
	was, known := h.last[name]
	if known && was.state == s {
		return
	}
	if h.last == nil {
		h.last = map[string]change{}
	}
	h.last[name] = change{s, time.Now()}
	for _, one := range states {
		h.observe(name, string(one), one == s)
	}
	switch {
	case s == stateDegraded:
		h.log.Warn("degraded", "check", name, "error", err, "means", c.means)
	case s == stateFailed:
		h.log.Warn("not ready", "check", name, "error", err, "means", c.means)
	case known:
		h.log.Info("well again", "check", name, "was", was.state, "for", time.Since(was.since).Round(time.Millisecond).String())
	}
}

// wasWell reports whether the part has been ok at least once.
func (h *health) wasWell(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.well[name]
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	data, _ := json.Marshal(body) // strings and booleans always marshal
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) // an error means that the client has left
}
