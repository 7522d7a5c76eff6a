// Package transport carries GraphQL requests from clients to the engine, and the answers back.
//
// # Invariants
//
//   - Every transport handles a request in the same steps: authenticate, check, limit, execute. It follows
//     the specifications of GraphQL over HTTP, GraphQL over SSE and graphql-transport-ws exactly.
//   - A client uses a bounded amount of memory and does not delay others: bodies, messages, queues,
//     operations and connections are bounded, and every read and write has a deadline. A client that does not
//     keep up loses its socket.
//   - A client gets "complete" or an error only if that is final. A stream that cannot continue is broken
//     off, and a socket is closed with a code on which clients reconnect.
//   - A connection ends with its session.
//
// The package knows no rule of the product and resolves no field. It does not listen: the process that serves
// a [Handler] bounds its connections.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/semaphore"

	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/internal/errs"
	"tideline/internal/trace"
	"tideline/server/limit"
)

// ReadTimeout is how long a client may take to send a request, or a message on a socket.
const ReadTimeout = 30 * time.Second

// accountTimeout is the least timeout of a request that signs up or logs in, since hashing a password is slow
// by design and few are hashed at a time. It also applies to requests that write thousands of rows.
const accountTimeout = 20 * time.Second

// Config configures a [Handler]. Fields without a default are required, unless they are marked optional.
type Config struct {
	// Engine executes operations.
	Engine *exec.Engine
	// Authenticate returns the viewer of a token, and when the token expires. Its error has the code
	// refusal.Unauthenticated if the token is not valid.
	Authenticate func(ctx context.Context, token string) (session.Viewer, time.Time, error)
	// Recall returns the result of Authenticate for a token that was recently found valid,
	// without a look-up. ok is false for any other token; Limits then decides whether it may be
	// looked up. Defaults to knowing no token.
	Recall func(token string) (v session.Viewer, expires time.Time, ok bool)
	// Watch calls ended when the viewer's session has ended, unless stop was called before. ended
	// may be called more than once.
	Watch func(v session.Viewer, ended func()) (stop func())
	// Limits refuse clients that take too much.
	Limits *limit.Limits

	// RequestTimeout is how long a query or mutation may take, including its authentication: 100 ms to 5
	// minutes. Sign-ups and log-ins have at least 20 s.
	RequestTimeout time.Duration
	// MaxBody bounds an HTTP body and a message on a socket, 1,024 to 67,108,864
	// bytes.
	MaxBody int
	// MaxCost is the cost of the most expensive operation that Engine admits.
	MaxCost int
	// PersistedCache is how many bytes of documents clients may register by their hash, 0 to
	// 1,073,741,824. 0 disables registration.
	PersistedCache int
	// TrustedDocuments is a file with a JSON object of hashes and documents. If it is set, no other
	// documents are executed. Optional.
	TrustedDocuments string
	// AlwaysTrusted are further documents, by their hash, that are executed besides the file's.
	AlwaysTrusted map[string]string
	// MaxSockets is how many sockets and event streams this process may have open at once, 1 to 1,000,000.
	MaxSockets int
	// AllowedOrigins are the other sites whose pages may use the API, such as https://app.example.com;
	// * allows all. Defaults to none.
	AllowedOrigins []string
	// Deflate accepts permessage-deflate from clients that offer it. Defaults to false.
	Deflate bool

	// InitTimeout is the time from a socket's handshake to connection_init. Defaults
	// to 5 s.
	InitTimeout time.Duration
	// PingInterval is how often an open socket or stream sends a heartbeat. A socket that is silent for two
	// intervals is closed. Defaults to 20 s.
	PingInterval time.Duration
	// MessageTimeout is how long a message on a socket may take to arrive, from its first
	// byte. Defaults to ReadTimeout.
	MessageTimeout time.Duration
	// WriteTimeout is how long writing one frame or event may take. Defaults to 10 s.
	WriteTimeout time.Duration
	// Operations is how many operations one socket may have in progress at once. Defaults to 100.
	Operations int
	// QueueFrames is how many frames of one socket may wait to be written. Defaults to 256.
	QueueFrames int

	// ObserveRequest is called for every operation with its kind ("query", "mutation", "subscription",
	// or "invalid" if it is not known), the code of its first error ("OK" without one), and its
	// duration, 0 if it was not executed.
	ObserveRequest func(kind, code string, took time.Duration)
	// ObserveSubscriptions is called when a subscription begins (1) or ends (-1).
	ObserveSubscriptions func(change int)
	// ObserveSlowSocket is called for each socket that was closed because its client did not read. All three
	// are optional and must return at once.
	ObserveSlowSocket func()
	// Tracer traces operations. Optional.
	Tracer *trace.Tracer
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Validate names the fields that are out of bounds, and says which values are allowed. Each line of the
// error begins with the name of a field.
func (c Config) Validate() error {
	all := []error{
		errs.Bound("RequestTimeout", c.RequestTimeout, 100*time.Millisecond, 5*time.Minute),
		errs.Bound("MaxBody", c.MaxBody, 1<<10, 64<<20),
		errs.Bound("PersistedCache", c.PersistedCache, 0, 1<<30),
		errs.Bound("MaxSockets", c.MaxSockets, 1, 1_000_000),
	}
	for _, origin := range c.AllowedOrigins {
		if origin != "*" && !isOrigin(origin) {
			all = append(all, fmt.Errorf("AllowedOrigins is %q: it must be an origin without a path, such as https://app.example.com, or *", origin))
		}
	}
	return errors.Join(all...)
}

func isOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && origin == u.Scheme+"://"+u.Host
}

func (c Config) withDefaults() Config {
	c.InitTimeout = cmp.Or(c.InitTimeout, 5*time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, 20*time.Second)
	c.MessageTimeout = cmp.Or(c.MessageTimeout, ReadTimeout)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.Operations = cmp.Or(c.Operations, 100)
	c.QueueFrames = cmp.Or(c.QueueFrames, 256)
	if c.Recall == nil {
		c.Recall = func(string) (v session.Viewer, expires time.Time, ok bool) { return }
	}
	if c.ObserveRequest == nil {
		c.ObserveRequest = func(string, string, time.Duration) {}
	}
	if c.ObserveSubscriptions == nil {
		c.ObserveSubscriptions = func(int) {}
	}
	if c.ObserveSlowSocket == nil {
		c.ObserveSlowSocket = func() {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// LongestRequest returns how long the longest request may take after it was read.
func (c Config) LongestRequest() time.Duration { return max(c.RequestTimeout, accountTimeout) }

// Handler serves the API on one path for all transports. It neither sets nor reads cookies, and accepts only
// JSON bodies. So the page of another site cannot make a request in a user's name.
type Handler struct {
	api     *api
	sockets *sockets
	http    http.Handler
}

// New returns a handler. Errors: a required field is missing or not allowed; the trusted
// documents cannot be read or are not valid.
func New(ctx context.Context, c Config) (*Handler, error) {
	if c.Engine == nil || c.Authenticate == nil || c.Watch == nil || c.Limits == nil {
		return nil, errors.New("transport: Engine, Authenticate, Watch and Limits are required")
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	c = c.withDefaults()
	a := &api{
		config:    c,
		documents: newDocuments(c.PersistedCache),
		bodies:    semaphore.NewWeighted(max(bodyBudget, 4*int64(c.MaxBody))),
		inFlight:  semaphore.NewWeighted(max(costInFlight, int64(c.MaxCost))),
		beginning: semaphore.NewWeighted(beginAtOnce), answerWithin: 20 * time.Second,
	}
	if c.TrustedDocuments != "" {
		var err error
		if a.documents, err = newTrusted(ctx, c.TrustedDocuments, c.AlwaysTrusted, c.Engine); err != nil {
			return nil, err
		}
	}
	h := &Handler{api: a, sockets: newSockets(a)}
	h.http = cors(h.sockets.origins, http.HandlerFunc(h.answer))
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }

// Query executes a query of the server itself for an anonymous client. The query counts against the limits of
// the client's address, and has the same time limit as other requests. Its document need not be trusted.
func (h *Handler) Query(ctx context.Context, remoteAddr string, request exec.Request) exec.Response {
	begun, address := time.Now(), limit.AddressOf(remoteAddr)
	operation, errs := h.api.admit(ctx, session.Viewer{}, address, request, nil)
	if len(errs) > 0 {
		return exec.Response{Errors: errs}
	}
	return h.api.execute(ctx, begun, session.Viewer{}, address, operation)
}

// Sockets returns the number of open sockets.
func (h *Handler) Sockets() int { return h.sockets.count() }

// Shutdown refuses new sockets and streams, and sends the open ones away one after the other: idle ones
// first, at a pace that the other servers can take, and within four fifths of the time until ctx's
// deadline. It closes a socket with 1012 once its queries and mutations are answered, and breaks off a
// stream. Each client is told when to reconnect, as docs/live.md describes. A connection works as
// before until its turn comes. Shutdown returns when all are gone. If ctx ends first, it cuts the rest
// off and returns the error of ctx.
func (h *Handler) Shutdown(ctx context.Context) error { return h.sockets.shutdown(ctx) }
