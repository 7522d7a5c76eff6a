// Package admin serves the admin page: operators see the state of all processes and stores
// there, and act on it.
//
// # Invariants
//
//   - Every read and every action requires that the caller is an admin at that moment. The credential is
//     a header and never a cookie, so the page of another site cannot send it.
//   - Every action is in the audit log, under the name of the admin.
//   - Nothing is computed while nobody looks. All viewers share one snapshot. It is made at most once a
//     second, and making it takes at most a tenth of the time.
//   - The page shows no post's text, no password, no token and no URL of a store.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/login"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/batch"
	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/server/limit"
	"tideline/storage"
)

// Config has the sources that the page shows and the parts it acts on. Fields without a default are required.
type Config struct {
	Sessions   *session.Store
	Login      *login.Login
	Directory  *account.Directory
	Moderation *moderation.Moderation
	Audit      *audit.Audit
	Fleet      *fleet.Fleet
	Queue      *queue.Queue
	Stores     *storage.Stores
	Limits     *limit.Limits // limits log-ins, together with the log-ins of the API
	Webhooks   func(context.Context) (webhook.Stats, error)
	// Ready returns the states of the parts of this process, as /readyz shows them.
	Ready func() map[string]string
	// Metrics gathers the metrics of this process.
	Metrics prometheus.Gatherer
	// Process is this process's id in the fleet. Version is the program's version.
	Process int64
	Version string
	// PostID parses a post's id of the API.
	PostID func(string) (int64, error)
	// Every is the shortest time between two snapshots. Defaults to a second.
	Every time.Duration
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Page serves the API of the admin page. It is safe for concurrent use.
type Page struct {
	cfg    Config
	shared batch.Shared[madeSnapshot]
	seats  chan struct{}   // a token for each open stream
	ended  <-chan struct{} // closed when the streams must end
}

const (
	// maxStreams bounds the streams open at once. Further ones are refused with 503.
	maxStreams = 16
	// logInFor bounds a log-in, which hashes a password. callFor bounds every other call.
	logInFor, callFor = 20 * time.Second, 10 * time.Second
	// maxBody bounds the bytes of a request.
	maxBody = 16 << 10
	// maxName bounds the bytes of a handle or an id in a URL.
	maxName = 200
)

// New returns the Page. Its streams end when ctx does.
func New(ctx context.Context, c Config) *Page {
	c.Every = cmp.Or(c.Every, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &Page{cfg: c, seats: make(chan struct{}, maxStreams), ended: ctx.Done()}
}

// Register adds the handlers of the page to the mux, below /api/.
func (p *Page) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/session", p.logIn)
	mux.HandleFunc("GET /api/session", p.forAdmins(p.whoami))
	mux.HandleFunc("DELETE /api/session", p.forAdmins(p.logOut))
	mux.HandleFunc("GET /api/snapshot", p.forAdmins(p.snapshot))
	mux.HandleFunc("GET /api/stream", p.stream)
	mux.HandleFunc("GET /api/post", p.forAdmins(p.post))
	mux.HandleFunc("GET /api/timeline", p.forAdmins(p.timeline))
	mux.HandleFunc("POST /api/jobs/retry", p.forAdmins(p.retry))
	mux.HandleFunc("POST /api/jobs/discard", p.forAdmins(p.discard))
	mux.HandleFunc("POST /api/timelines/rebuild", p.forAdmins(p.rebuild))
	mux.HandleFunc("POST /api/workers", p.forAdmins(p.workers))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		p.answer(w, r, nil, &failure{http.StatusNotFound, "NOT_FOUND", "There is nothing at this address."})
	})
}

// call handles one request of an admin. Its result is sent as JSON.
type call func(r *http.Request, admin session.Viewer) (result any, err error)

// forAdmins wraps a call so that only admins can make it.
func (p *Page) forAdmins(do call) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callFor)
		defer cancel()
		r = r.WithContext(ctx)
		admin, err := p.admin(r)
		var result any
		if err == nil {
			result, err = do(r, admin)
		}
		p.answer(w, r, result, err)
	}
}

// failure is an error whose message is sent to the client as it is, as a refusal.Error is.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.message }

func bad(message string) error { return &failure{http.StatusBadRequest, "BAD_USER_INPUT", message} }

var statuses = map[refusal.Code]int{
	refusal.Unauthenticated: http.StatusUnauthorized, refusal.Forbidden: http.StatusForbidden, refusal.NotFound: http.StatusNotFound,
	refusal.BadInput: http.StatusBadRequest, refusal.Conflict: http.StatusConflict, refusal.Unavailable: http.StatusServiceUnavailable,
}

// answer writes a result, or an error with a message that is safe for clients.
func (p *Page) answer(w http.ResponseWriter, r *http.Request, result any, err error) {
	status := http.StatusOK
	var told *failure
	var refused *refusal.Error
	var tooMany *limit.Refusal
	switch {
	case err == nil:
	case errors.As(err, &tooMany):
		w.Header().Set("Retry-After", strconv.Itoa(tooMany.RetryAfter))
		status, result = http.StatusTooManyRequests, inError(tooMany.Message, map[string]any{"code": "RATE_LIMITED"})
	case errors.As(err, &told):
		status, result = told.status, inError(told.message, map[string]any{"code": told.code})
	case errors.As(err, &refused):
		if refused.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(refused.RetryAfter))
		}
		status, result = statuses[refused.Reason.Code], inError(refused.Message, refused.Extensions())
	case errors.Is(err, context.DeadlineExceeded):
		status, result = http.StatusGatewayTimeout, inError("It took too long.", map[string]any{"code": "TIMEOUT"})
	default:
		status, result = http.StatusInternalServerError, inError("Something failed; the log says what.", map[string]any{"code": "INTERNAL"})
		p.cfg.Logger.ErrorContext(r.Context(), "admin page", "path", r.URL.Path, "error", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(result) // an error means that the client has left
}

func inError(message string, extensions map[string]any) any {
	extensions["message"] = message
	return map[string]any{"error": extensions}
}

// read reads the JSON object of a request.
func read(r *http.Request, into any) error {
	if r.Header.Get("Content-Type") != "application/json" {
		return &failure{http.StatusUnsupportedMediaType, "BAD_USER_INPUT", "Send the request as application/json."}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return bad("The request cannot be read.")
	}
	if len(text) > maxBody {
		return &failure{http.StatusRequestEntityTooLarge, "BAD_USER_INPUT", "The request is too large."}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return bad("The request is not the JSON object that is expected.")
	}
	return nil
}
