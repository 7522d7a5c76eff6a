// Package transport carries GraphQL from clients to the engine, the answers back.
//
// What holds:
//
//   - Every transport does the same with a request: authenticate, check, limit,
//     execute. GraphQL over HTTP, GraphQL over SSE and graphql-transport-ws are
//     followed to the letter.
//   - A client costs a bounded amount of memory and nobody else's time: bodies,
//     messages, queues, operations and connections have bounds, every read and
//     write has a deadline. A client that does not keep up loses its socket.
//   - A client is told "complete" or given an error only when that is the last word.
//     A stream that cannot go on is broken off, and a socket is closed with a code
//     on which clients reconnect.
//   - A connection ends with its session.
//
// It knows no rule of the product and resolves no field. It does not listen: the
// process that serves a [Handler] bounds its connections.
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

	"tideline/feed/account"
	"tideline/graph/exec"
	"tideline/internal/trace"
	"tideline/server/limit"
)

// ReadTimeout is how long a client may take to send a request, or a message on a
// socket.
const ReadTimeout = 30 * time.Second

// accountTimeout is the least time for a request that signs up or logs in:
// hashing a password takes long by design, and few are hashed at a time. It is also that
// for thousands of rows.
const accountTimeout = 20 * time.Second

// Config is for [New]. Fields without a default are required, unless they are
// optional.
type Config struct {
	// Engine executes operations.
	Engine *exec.Engine
	// Authenticate returns whose token it is, and when it expires. Its error has the
	// code refusal.Unauthenticated when the token is nobody's.
	Authenticate func(ctx context.Context, token string) (account.Viewer, time.Time, error)
	// Recall returns what Authenticate would return for a token that was lately found good, at
	// no cost. ok is false for any other token: Limits decides whether the client may have it
	// looked up. Defaults to knowing no token.
	Recall func(token string) (v account.Viewer, expires time.Time, ok bool)
	// Ended returns those of the grants that are over.
	Ended func(ctx context.Context, grants []account.Grant) (ended []account.Grant, err error)
	// Limits refuse clients that take too much.
	Limits *limit.Limits

	// RequestTimeout is how long a query or mutation may take, with its
	// authentication: 100 ms to 5 minutes. Sign-ups and log-ins have at least 20 s.
	RequestTimeout time.Duration
	// MaxBody bounds an HTTP body and a message on a socket, 1,024 to 67,108,864
	// bytes.
	MaxBody int
	// MaxCost is the cost of the dearest operation that Engine admits.
	MaxCost int
	// PersistedCache is how many bytes of documents clients may register by their
	// hash, 0 to 1,073,741,824; 0: none.
	PersistedCache int
	// TrustedDocuments is a file with a JSON object of hash and document. With it no
	// other documents are executed. Optional.
	TrustedDocuments string
	// AlwaysTrusted are documents by their hash that are executed beside those of the file.
	AlwaysTrusted map[string]string
	// MaxSockets is how many sockets and streams of events this process has open at
	// once, 1 to 1,000,000.
	MaxSockets int
	// AllowedOrigins are the other sites whose pages may use the API, as
	// https://app.example.com; * is all of them. Defaults to none.
	AllowedOrigins []string
	// Deflate agrees to permessage-deflate with clients that offer it. Defaults to not.
	Deflate bool

	// InitTimeout is the time from a socket's handshake to connection_init. Defaults
	// to 5 s.
	InitTimeout time.Duration
	// PingInterval is how often an open socket or stream is asked for a sign of
	// life. A socket that is silent for two of them is closed. Defaults to 20 s.
	PingInterval time.Duration
	// MessageTimeout is the time for one message on a socket to come, from its first
	// byte. Defaults to ReadTimeout.
	MessageTimeout time.Duration
	// WriteTimeout is the time for one frame or event to leave. Defaults to 10 s.
	WriteTimeout time.Duration
	// Operations is how many operations one socket may have under way at once.
	// Defaults to 100.
	Operations int
	// QueueFrames and QueueBytes bound the frames of one socket that wait to be
	// written; a single frame may be larger. Default to 256 and 524,288.
	QueueFrames, QueueBytes int

	// ObserveRequest is told of every operation: its kind ("query", "mutation",
	// "subscription"; "invalid" when it could not be told), the code of its first
	// error ("OK" without one), and how long it took, 0 when it was not executed.
	ObserveRequest func(kind, code string, took time.Duration)
	// ObserveSubscriptions is told of each subscription that begins (1) or ends (-1).
	ObserveSubscriptions func(change int)
	// ObserveSlowSocket is told of each socket that was closed because its client did
	// not read. All three are optional and must return at once.
	ObserveSlowSocket func()
	// Tracer traces operations. Optional.
	Tracer *trace.Tracer
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Validate says which of the fields that bound something are not allowed, and what
// is. Each line of the error begins with the name of the field.
func (c Config) Validate() error {
	var errs []error
	if least, most := 100*time.Millisecond, 5*time.Minute; c.RequestTimeout < least || c.RequestTimeout > most {
		errs = append(errs, fmt.Errorf("RequestTimeout is %v: it must be %v to %v", c.RequestTimeout, least, most))
	}
	for _, field := range []struct {
		name               string
		value, least, most int
	}{
		{"MaxBody", c.MaxBody, 1 << 10, 64 << 20},
		{"PersistedCache", c.PersistedCache, 0, 1 << 30},
		{"MaxSockets", c.MaxSockets, 1, 1_000_000},
	} {
		if field.value < field.least || field.value > field.most {
			errs = append(errs, fmt.Errorf("%s is %d: it must be %d to %d", field.name, field.value, field.least, field.most))
		}
	}
	for _, origin := range c.AllowedOrigins {
		if origin != "*" && !isOrigin(origin) {
			errs = append(errs, fmt.Errorf("AllowedOrigins is %q: it must be an origin without a path, such as https://app.example.com, or *", origin))
		}
	}
	return errors.Join(errs...)
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
	c.QueueBytes = cmp.Or(c.QueueBytes, 512<<10)
	if c.Recall == nil {
		c.Recall = func(string) (v account.Viewer, expires time.Time, ok bool) { return }
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// LongestRequest is how long the longest request may take, once it was read.
func (c Config) LongestRequest() time.Duration { return max(c.RequestTimeout, accountTimeout) }

// Handler serves the API on one path, for all transports. It sets no cookie and
// reads none, and takes bodies in JSON only: so the page of another site can make
// no request in a user's name.
type Handler struct {
	api     *api
	sockets *sockets
	http    http.Handler
}

// New returns a handler. Errors: a field that is required is missing or not
// allowed; the trusted documents cannot be read, or cannot be executed.
func New(ctx context.Context, c Config) (*Handler, error) {
	if c.Engine == nil || c.Authenticate == nil || c.Ended == nil || c.Limits == nil {
		return nil, errors.New("transport: Engine, Authenticate, Ended and Limits are required")
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

// ServeHTTP see http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }

// Run ends connections whose session has ended, until ctx ends. Until then nothing
// of a session that is over is delivered, but an idle socket of it stays open when
// Run does not run.
//
// Cost: a query for each thousand sessions that are connected, every three seconds.
func (h *Handler) Run(ctx context.Context) error { return h.sockets.sessions.run(ctx) }

// Sockets is how many sockets are open.
func (h *Handler) Sockets() int { return h.sockets.count() }

// Shutdown refuses new sockets and streams, and sends away those that are open, one after the
// other: idle ones first, at a pace that the other servers can take, and within four fifths of
// the time that ctx has left. A socket is closed with 1012 once its queries and mutations are
// answered, and a stream is broken off. Each client is told when to reconnect, as docs/live.md
// says; a connection works as before until its turn comes. Shutdown returns when all are gone.
// When ctx ends before, it cuts the rest off and returns the error of ctx.
func (h *Handler) Shutdown(ctx context.Context) error { return h.sockets.shutdown(ctx) }
