// Package admin is the admin page: what operators see of the whole, with a hand on it.
//
// What holds:
//
//   - Nobody is shown anything, or does anything, without being an admin at that moment.
//     The credential is a header, which no other site's page can send, and no cookie.
//   - What is done is in the audit log, under the name of who did it.
//   - Nothing is computed while nobody looks. All who look share one snapshot, of at most
//     one a second, and at most a tenth of the time goes into making them.
//   - No post's text is shown, and no password, token, or URL of a store.
package admin

import (
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
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/server/limit"
	"tideline/storage"
)

// Config has what the page shows and acts on. Fields without a default are required.
type Config struct {
	Accounts   *account.Accounts
	Directory  *account.Directory
	Moderation *moderation.Moderation
	Audit      *audit.Audit
	Fleet      *fleet.Fleet
	Queue      *queue.Queue
	Stores     *storage.Stores
	Limits     *limit.Limits // of log-ins, with those of the API
	Webhooks   func(context.Context) (webhook.Stats, error)
	// Ready has the states of the parts of this process, as /readyz has them.
	Ready func() map[string]string
	// Metrics are those of this process.
	Metrics prometheus.Gatherer
	// Process is this process's id in the fleet, Version that of the program.
	Process int64
	Version string
	// PostID reads the id that the API gives a post.
	PostID func(string) (int64, error)
	// Every is how often a snapshot is made, at most. Defaults to a second.
	Every time.Duration
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Page answers for the page. It is safe for concurrent use.
type Page struct {
	cfg    Config
	shared snapshots
	seats  chan struct{}   // of streams
	ended  <-chan struct{} // closed when the streams are to end
}

const (
	// maxStreams is how many may look at once; the others are told to come back.
	maxStreams = 16
	// logInFor bounds a log-in, which hashes a password, and callFor every other call.
	logInFor, callFor = 20 * time.Second, 10 * time.Second
	// maxBody bounds the bytes of a request.
	maxBody = 16 << 10
	// maxName bounds the bytes of a handle or an id in an address.
	maxName = 200
)

// New returns the Page. Its streams end when ctx does.
func New(ctx context.Context, c Config) *Page {
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Page{cfg: c, seats: make(chan struct{}, maxStreams), ended: ctx.Done()}
}

// Register adds what the page asks for to the mux, below /api/.
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

// call is what an admin asks for. Its result is answered as JSON.
type call func(r *http.Request, admin account.Viewer) (result any, err error)

// forAdmins makes a call for admins alone.
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

// failure is an error that is told as it is, beside those of package refusal.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.message }

func bad(message string) error { return &failure{http.StatusBadRequest, "BAD_USER_INPUT", message} }

var statuses = map[refusal.Code]int{
	refusal.Unauthenticated: http.StatusUnauthorized, refusal.Forbidden: http.StatusForbidden, refusal.NotFound: http.StatusNotFound,
	refusal.BadInput: http.StatusBadRequest, refusal.Conflict: http.StatusConflict,
}

// answer writes a result, or an error in the words that are meant for clients.
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
