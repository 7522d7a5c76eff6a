package transport

import (
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/goleak"

	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/graph/exec/exectest"
	"tideline/server/internal/servertest"
	"tideline/server/limit"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m, func() error { return goleak.Find() }) }

const testSchema = `
type Query {
  hello: String!
  echo(n: Int): Int
  fail: String
  panics: String
}
type Mutation {
  set(n: Int!): Int!
  "Waits until the test lets it go on."
  hold: Boolean!
  signUp: Boolean!
  logIn: Boolean!
  changePassword: Boolean!
}
type Subscription {
  count(to: Int!): Int!
  "Brings what the test sends, until the test ends it."
  news: Int!
  flood: String!
  idle: Int!
  "Does not begin before it is stopped."
  held: Int!
  refused: Int!
  unavailable: Int!
}
`

// fixture is a handler on a real engine and a real listener, with a schema and sessions for tests.
type fixture struct {
	t       *testing.T
	handler *Handler
	sockets *sockets
	server  *httptest.Server

	subscriptions, slowSockets atomic.Int64 // values of the Observe functions

	news  chan any      // the values of the subscription news
	begun chan struct{} // receives when a waiting operation has begun
	free  chan struct{} // closed to end the mutation hold

	mu       sync.Mutex
	sessions map[string]openSession
	broken   bool                           // the database does not answer
	watched  map[int64]map[*func()]struct{} // functions that end connections, by session
}

type openSession struct {
	viewer  session.Viewer
	expires time.Time
}

// maxBody is the fixture's MaxBody.
const maxBody = 1 << 20

// priceOf makes the value of an argument the price.
func priceOf(argument string) func(map[string]any) int {
	return func(arguments map[string]any) int {
		price, _ := arguments[argument].(int)
		return price
	}
}

// newFixture serves without limits. tweak may change the configuration; it may be nil.
func newFixture(t *testing.T, tweak func(*Config)) *fixture {
	f := &fixture{
		t: t, news: make(chan any), begun: make(chan struct{}, 1), free: make(chan struct{}),
		sessions: map[string]openSession{"alice": {session.Viewer{ID: 1, Session: 10}, time.Now().Add(time.Hour)}},
	}
	engine, err := exec.New(exec.Config{
		Schema: exectest.New(t, testSchema, f.fields()), Introspection: true,
		Prices: map[string]func(map[string]any) int{"Query.echo": priceOf("n")},
		ErrorPresenter: func(_ context.Context, err error) *gqlerror.Error {
			if code := refusal.CodeOf(err); code != "" {
				return &gqlerror.Error{Message: err.Error(), Extensions: map[string]any{"code": string(code)}}
			}
			return nil
		},
	})
	require.NoError(t, err)

	config := Config{
		Engine: engine, Authenticate: f.authenticate, Limits: new(limit.Limits),
		Watch:          f.watch,
		RequestTimeout: 5 * time.Second, MaxBody: maxBody, MaxSockets: 20_000,
		AllowedOrigins:       []string{"https://friend.example"},
		ObserveSubscriptions: func(change int) { f.subscriptions.Add(int64(change)) },
		ObserveSlowSocket:    func() { f.slowSockets.Add(1) },
	}
	if tweak != nil {
		tweak(&config)
	}
	f.handler, err = New(t.Context(), config)
	require.NoError(t, err)
	f.sockets = f.handler.sockets
	f.server = httptest.NewServer(Linger(IdentifyRequests(f.handler)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_ = f.sockets.shutdown(ctx) // ends what the test has left open
		f.server.Close()
	})
	return f
}

func (f *fixture) fields() map[string]exectest.Resolver {
	yes := func(context.Context, map[string]any) (any, error) { return true, nil }
	return map[string]exectest.Resolver{
		"Query.hello":  func(context.Context, map[string]any) (any, error) { return "world", nil },
		"Query.echo":   func(_ context.Context, args map[string]any) (any, error) { return args["n"], nil },
		"Query.fail":   func(context.Context, map[string]any) (any, error) { return nil, errors.New("secret") },
		"Query.panics": func(context.Context, map[string]any) (any, error) { panic("secret") },
		"Mutation.set": func(_ context.Context, args map[string]any) (any, error) { return args["n"], nil },
		"Mutation.hold": func(ctx context.Context, _ map[string]any) (any, error) {
			f.begun <- struct{}{}
			select {
			case <-f.free:
				return true, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		},
		"Mutation.signUp": yes, "Mutation.logIn": yes, "Mutation.changePassword": yes,
		"Subscription.count": func(ctx context.Context, args map[string]any) (any, error) {
			to, err := graphql.UnmarshalInt(args["to"])
			if err != nil {
				return nil, err
			}
			return from(ctx, func() <-chan any { return produce(ctx, to, func(i int) any { return i + 1 }) })
		},
		"Subscription.flood": func(ctx context.Context, _ map[string]any) (any, error) {
			text := strings.Repeat("x", 10_000)
			return from(ctx, func() <-chan any { return produce(ctx, 1<<30, func(int) any { return text }) })
		},
		"Subscription.news": func(ctx context.Context, _ map[string]any) (any, error) {
			return from(ctx, func() <-chan any { return f.news })
		},
		"Subscription.idle": func(ctx context.Context, _ map[string]any) (any, error) {
			return from(ctx, func() <-chan any { return nil })
		},
		"Subscription.held": func(ctx context.Context, _ map[string]any) (any, error) {
			f.begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"Subscription.refused": func(context.Context, map[string]any) (any, error) {
			return nil, refusal.ErrSignIn
		},
		"Subscription.unavailable": func(context.Context, map[string]any) (any, error) { return nil, errors.New("secret") },
	}
}

// from returns a subscription to the values of a channel.
func from(ctx context.Context, events func() <-chan any) (any, error) {
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[any], error) {
		return exectest.From(ctx, events(), wake), nil
	})
}

func produce(ctx context.Context, n int, value func(int) any) <-chan any {
	out := make(chan any)
	go func() {
		defer close(out)
		for i := range n {
			select {
			case out <- value(i):
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (f *fixture) authenticate(_ context.Context, token string) (session.Viewer, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token == "database-down" || f.broken {
		return session.Viewer{}, time.Time{}, errors.New("secret")
	}
	s, ok := f.sessions[token]
	if !ok || !s.expires.After(time.Now()) {
		return session.Viewer{}, time.Time{}, refusal.New(refusal.SessionEnded, "no session")
	}
	return s.viewer, s.expires, nil
}

func (f *fixture) breakDatabase(broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

// watch is Config.Watch. endSession calls ended.
func (f *fixture) watch(v session.Viewer, ended func()) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watched == nil {
		f.watched = map[int64]map[*func()]struct{}{}
	}
	if f.watched[v.Session] == nil {
		f.watched[v.Session] = map[*func()]struct{}{}
	}
	f.watched[v.Session][&ended] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.watched[v.Session], &ended); len(f.watched[v.Session]) == 0 {
			delete(f.watched, v.Session)
		}
	}
}

// watchedSessions returns the ids of the sessions that connections watch.
func (f *fixture) watchedSessions() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.watched))
}

// endSession tells the connections of a session that it has ended.
func (f *fixture) endSession(id int64) {
	f.mu.Lock()
	var ends []func()
	for ended := range f.watched[id] {
		ends = append(ends, *ended)
	}
	f.mu.Unlock()
	for _, ended := range ends {
		ended()
	}
}

func (f *fixture) logOut(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, token)
}

func (f *fixture) logIn(token string, expires time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[token] = openSession{session.Viewer{ID: 2, Session: 20}, expires}
}

// dial opens a socket.
func (f *fixture) dial(t *testing.T, protocols ...string) *servertest.Peer {
	t.Helper()
	return servertest.Dial(t, nil, f.server.URL, protocols...)
}

// connect dials and sends connection_init. The payload is JSON, or "" for none.
func (f *fixture) connect(t *testing.T, protocol, payload string) *servertest.Peer {
	t.Helper()
	p := f.dial(t, protocol)
	p.Send(messageOf("connection_init", payload))
	p.Expect(`{"type":"connection_ack"}`)
	return p
}

func messageOf(kind, payload string) string {
	if payload == "" {
		return `{"type":"` + kind + `"}`
	}
	return `{"type":"` + kind + `","payload":` + payload + `}`
}

// underWay returns how many operations on sockets have not stopped.
func (f *fixture) underWay() (n int) {
	f.sockets.mu.Lock()
	defer f.sockets.mu.Unlock()
	for s := range f.sockets.open {
		s.operations.mu.Lock()
		n += s.operations.running
		s.operations.mu.Unlock()
	}
	return n
}

// gone waits until the server has no open socket.
func (f *fixture) gone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return f.sockets.count() == 0 }, 30*time.Second, time.Millisecond)
}
