package server

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/goleak"

	"tideline/feed/account"
	"tideline/feed/refusal"
	"tideline/graph/exec"
	"tideline/graph/exec/exectest"
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
}
type Subscription {
  count(to: Int!): Int!
  "Brings what the test sends, until the test ends it."
  news: Int!
  flood: String!
  idle: Int!
  refused: Int!
  unavailable: Int!
}
`

// fixture is both transports on a real engine and a real listener, with a
// schema and sessions made for the test.
type fixture struct {
	t       *testing.T
	handler *graphqlHandler
	sockets *sockets
	server  *httptest.Server
	log     *strings.Builder

	news chan any      // what news brings
	held chan struct{} // receives when hold has begun
	free chan struct{} // closed to let hold go on

	mu       sync.Mutex
	sessions map[string]session
	broken   bool // the database
}

type session struct {
	viewer  account.Viewer
	expires time.Time
}

// maxBody is the fixture's bound.
const maxBody = 1 << 20

// newFixture serves; tweak may change the bounds of sockets, and may be nil.
func newFixture(t *testing.T, tweak func(*socketConfig)) *fixture {
	f := &fixture{
		t: t, log: new(strings.Builder),
		news: make(chan any), held: make(chan struct{}, 1), free: make(chan struct{}),
		sessions: map[string]session{"alice": {account.Viewer{ID: 1, Session: 10}, time.Now().Add(time.Hour)}},
	}
	engine, err := exec.New(exec.Config{
		Schema: exectest.New(t, testSchema, f.fields()), Introspection: true,
		ErrorPresenter: func(_ context.Context, err error) *gqlerror.Error {
			if code := refusal.CodeOf(err); code != "" {
				return &gqlerror.Error{Message: err.Error(), Extensions: map[string]any{"code": string(code)}}
			}
			return nil
		},
	})
	require.NoError(t, err)

	config := defaultSocketConfig
	if tweak != nil {
		tweak(&config)
	}
	log, err := newLogger(f.log, "text", "error")
	require.NoError(t, err)
	api := &api{
		engine: engine, authenticate: f.authenticate, metrics: newMetrics(), log: log, timeout: 5 * time.Second, maxBody: maxBody,
	}
	f.sockets = newSockets(api, config, []string{"https://friend.example"})
	f.handler = &graphqlHandler{api: api, sockets: f.sockets}
	f.server = httptest.NewServer(identify(f.handler))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_ = f.sockets.shutdown(ctx) // what a test leaves open is cut off
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
			f.held <- struct{}{}
			select {
			case <-f.free:
				return true, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		},
		"Mutation.signUp": yes, "Mutation.logIn": yes,
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
		"Subscription.refused": func(context.Context, map[string]any) (any, error) {
			return nil, &refusal.Error{Code: refusal.Unauthenticated, Message: "Sign in first."}
		},
		"Subscription.unavailable": func(context.Context, map[string]any) (any, error) { return nil, errors.New("secret") },
	}
}

// from is a subscription to what comes by a channel.
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

func (f *fixture) authenticate(_ context.Context, token string) (account.Viewer, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token == "database-down" || f.broken {
		return account.Viewer{}, time.Time{}, errors.New("secret")
	}
	s, ok := f.sessions[token]
	if !ok || !s.expires.After(time.Now()) {
		return account.Viewer{}, time.Time{}, &refusal.Error{Code: refusal.Unauthenticated, Message: "no session"}
	}
	return s.viewer, s.expires, nil
}

func (f *fixture) breakDatabase(broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

func (f *fixture) logOut(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, token)
}

func (f *fixture) logIn(token string, expires time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions[token] = session{account.Viewer{ID: 2, Session: 20}, expires}
}

// peer is a raw client.
type peer struct {
	*testing.T
	conn *websocket.Conn
}

func (f *fixture) dial(t *testing.T, protocols ...string) *peer {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: 30 * time.Second}
	conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
	require.NoError(t, err)
	response.Body.Close()
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn}
}

// connect dials and says who it is; the payload is JSON, or "" for none.
func (f *fixture) connect(t *testing.T, protocol, payload string) *peer {
	t.Helper()
	p := f.dial(t, protocol)
	p.send(messageOf("connection_init", payload))
	p.expect(`{"type":"connection_ack"}`)
	if protocol == legacyWS.protocol {
		p.expect(`{"type":"ka"}`)
	}
	return p
}

func messageOf(kind, payload string) string {
	if payload == "" {
		return `{"type":"` + kind + `"}`
	}
	return `{"type":"` + kind + `","payload":` + payload + `}`
}

func (p *peer) send(message string) {
	p.Helper()
	require.NoError(p, p.conn.WriteMessage(websocket.TextMessage, []byte(message)))
}

func (p *peer) receive() string {
	p.Helper()
	require.NoError(p, p.conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	kind, data, err := p.conn.ReadMessage()
	require.NoError(p, err)
	require.Equal(p, websocket.TextMessage, kind)
	return string(data)
}

func (p *peer) expect(message string) {
	p.Helper()
	require.JSONEq(p, message, p.receive())
}

// expectClose reads on to the close frame and returns its reason.
func (p *peer) expectClose(code int) string {
	p.Helper()
	require.NoError(p, p.conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	for {
		_, _, err := p.conn.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		require.ErrorAs(p, err, &closed)
		require.Equal(p, code, closed.Code, closed.Text)
		return closed.Text
	}
}

// gone waits until the server holds no socket any more.
func (f *fixture) gone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return f.sockets.count() == 0 }, 30*time.Second, time.Millisecond)
}

// metric is the sum of a counter's or gauge's values.
func (f *fixture) metric(name string) float64 {
	families, err := f.sockets.api.metrics.registry.Gather()
	require.NoError(f.t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
