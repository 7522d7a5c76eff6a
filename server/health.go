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
	"tideline/storage"
)

// health asks the parts of the process for their states, and answers /livez and /readyz.
// The log and the metric tell a state when it changes. A call of /readyz asks no part: it is
// answered from the last states, so that no number of calls is work for SQL or Redis.
type health struct {
	checks   []check
	log      *slog.Logger
	observe  func(check, state string, is bool)
	stopping atomic.Bool // set when the process begins to stop

	mu    sync.Mutex
	last  map[string]change // of each check that was asked
	well  map[string]bool   // the checks that were ok once
	asked time.Time         // when all were; zero: not yet
}

// check asks one part of the process.
type check struct {
	name string
	ask  func(context.Context) error
	// spare says that the process serves without the part, once it has served with it:
	// then the part is degraded, not failed. It is degraded in any case if the error is
	// storage.ErrSomeAnswer, storage.ErrNoWrites, storage.ErrHidesIncarnation or
	// identity.ErrOldKeys.
	spare bool
	// means says what happens meanwhile, for /readyz and the log.
	means string
}

// state is how a part is.
type state string

const (
	stateOK       state = "ok"
	stateDegraded state = "degraded" // some requests are slower, or fail
	stateFailed   state = "failed"
)

var states = []state{stateOK, stateDegraded, stateFailed}

// change is the state of a part, and since when.
type change struct {
	state state
	since time.Time
}

const (
	// checkTimeout bounds all checks of one round together.
	checkTimeout = 2 * time.Second
	// checkEvery is the pause between rounds, and checkAgain the pause while a part is
	// failed, so that the process is soon ready again.
	checkEvery = time.Second
	checkAgain = 100 * time.Millisecond
	// staleAfter is the age from which states say nothing: the process was stopped, or a
	// part neither answers nor gives up.
	staleAfter = 30 * time.Second
)

// serve adds /livez and /readyz.
func (h *health) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", h.live)
	mux.HandleFunc("GET /readyz", h.ready)
}

// versionHeader says in /livez which version answers, and of which commit.
const versionHeader = "X-Tideline-Version"

// live serves /livez: the process answers.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	build := ThisBuild()
	w.Header().Set(versionHeader, build.Version+" ("+build.Commit+")")
	reply(w, http.StatusOK, map[string]any{"live": true})
}

// ready serves /readyz. It names the parts that are degraded or failed, and says what
// happens meanwhile; the log alone says why. With a failed part the process is not ready.
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
	// stopping is the state of a process that stops.
	stopping = "stopping"
	// unknown is the state of a process that has not asked its parts lately.
	unknown = "unknown"
)

// states names the states that the parts had when they were last asked.
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

// watch asks all parts again and again, until ctx ends.
//
// Cost: each second a ping of SQL and a write to each master of Redis.
func (h *health) watch(ctx context.Context) error {
	for {
		wait := checkEvery
		if slices.Contains(h.ask(ctx), stateFailed) {
			wait = checkAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// ask asks all parts at once, and returns their states in the order of the checks.
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
			if !errors.Is(ctx.Err(), context.Canceled) { // the process ends
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

// tell logs a state that is not the last one of the part, and observes it.
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

// wasWell reports whether the part was ok once.
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
