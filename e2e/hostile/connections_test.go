package hostile

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// socket is a raw client of the subprotocol graphql-transport-ws.
type socket struct {
	t    *testing.T
	conn *websocket.Conn
}

// open opens a socket as the token's user, or anonymously if the token is "". If the
// server refuses the handshake, s is nil and refused is the server's answer.
func (p *target) open(token string) (s *socket, refused answer) {
	p.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}
	begin := time.Now()
	conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+"/graphql", nil)
	require.NotNil(p.t, response, err)
	defer response.Body.Close()
	if err != nil {
		body, _ := io.ReadAll(response.Body)
		return nil, answer{response.StatusCode, response.Header, string(body), time.Since(begin)}
	}
	s = &socket{p.t, conn}
	p.t.Cleanup(func() { conn.Close() })
	payload := ""
	if token != "" {
		payload = `,"payload":{"Authorization":"Bearer ` + token + `"}`
	}
	s.send(`{"type":"connection_init"` + payload + `}`)
	require.Contains(p.t, s.receive(), "connection_ack")
	return s, answer{}
}

func (s *socket) send(message string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.WriteMessage(websocket.TextMessage, []byte(message)))
}

// receive waits for the next message that is not a ping.
func (s *socket) receive() string {
	s.t.Helper()
	for {
		require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(patience)))
		_, message, err := s.conn.ReadMessage()
		require.NoError(s.t, err)
		if text := string(message); !strings.Contains(text, `"type":"ping"`) {
			return text
		}
	}
}

// ask sends a query over the socket and returns the first answer.
func (s *socket) ask(id, query string) string {
	s.t.Helper()
	require.NoError(s.t, s.conn.WriteJSON(map[string]any{"id": id, "type": "subscribe", "payload": map[string]any{"query": query}}))
	first := s.receive()
	if strings.Contains(first, `"type":"next"`) {
		require.Contains(s.t, s.receive(), `"type":"complete"`)
	}
	return first
}

func TestConnectionsOfAnAddress(t *testing.T) {
	p := start(t, "--max-sockets-per-address=3")
	for range 3 {
		_, refused := p.open("")
		require.Zero(t, refused.status)
	}
	_, refused := p.open("")
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.Contains(t, refused.body, "3 sockets")
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Less(t, refused.took, refusal)
	require.Equal(t, http.StatusOK, p.ask("{__typename}", nil).status, "requests are no sockets")
}

func TestConnectionsOfTheProcess(t *testing.T) {
	p := start(t, "--max-sockets=3", "--rate-limit=off")
	for range 3 {
		_, refused := p.open("")
		require.Zero(t, refused.status)
	}
	_, refused := p.open("")
	require.Equal(t, http.StatusServiceUnavailable, refused.status)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Less(t, refused.took, refusal)
}

func TestConnectionsOfAUser(t *testing.T) {
	p := start(t, "--max-sockets-per-user=2")
	token, other := p.signUp("x"), p.signUp("y")
	for range 2 {
		s, _ := p.open(token)
		require.Contains(t, s.ask("1", "{viewer{handle}}"), `"handle":"x"`)
	}
	third, _ := p.open(token)
	refused := third.ask("1", "{viewer{handle}}")
	require.Contains(t, refused, `"RATE_LIMITED"`)
	require.Contains(t, refused, `"limit":"sockets"`)
	require.Contains(t, refused, `"allowed":2`)
	fourth, _ := p.open(other)
	require.Contains(t, fourth.ask("1", "{viewer{handle}}"), `"handle":"y"`)
}

func TestSubscriptions(t *testing.T) {
	const listen = "subscription{timelineEvents{__typename}}"
	for _, flag := range []string{"user", "address"} {
		t.Run("of one "+flag, func(t *testing.T) {
			p := start(t, "--max-subscriptions-per-"+flag+"=2")
			s, _ := p.open(p.signUp("x"))
			for i := range 3 {
				require.NoError(t, s.conn.WriteJSON(map[string]any{"id": fmt.Sprint(i), "type": "subscribe", "payload": map[string]any{"query": listen}}))
				if i < 2 {
					require.Eventually(t, func() bool { return p.metric("tideline_live_subscriptions") == i+1 }, patience, poll)
				}
			}
			refused := s.receive()
			for strings.Contains(refused, `"type":"next"`) { // a first heartbeat of another subscription
				refused = s.receive()
			}
			require.Contains(t, refused, `"id":"2"`)
			require.Contains(t, refused, `"RATE_LIMITED"`)
			require.Contains(t, refused, `"limit":"subscriptions"`)
			require.Contains(t, refused, `"allowed":2`)
			p.healthy()
		})
	}
	// Event streams over HTTP have the same limit.
	p := start(t, "--max-sockets-per-user=1")
	token := p.signUp("x")
	stream := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/graphql", strings.NewReader(`{"query":"`+listen+`"}`))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "text/event-stream")
		as(token)(request)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { response.Body.Close() })
		require.Equal(t, http.StatusOK, response.StatusCode)
		first := make([]byte, 1000)
		n, _ := response.Body.Read(first) // a refusal may end the stream, so an error is fine
		return string(first[:n])
	}
	require.True(t, strings.HasPrefix(stream(), ":"), "it has begun")
	require.Contains(t, stream(), "A user may have 1 sockets and streams")
}

func TestMessages(t *testing.T) {
	p := start(t, "--max-body=100000")
	ping := func(size int) string {
		const text = `{"type":"ping"`
		return text + strings.Repeat(" ", size-len(text)-1) + "}"
	}
	s, _ := p.open("")
	s.send(ping(100_000))
	require.Contains(t, s.receive(), "pong")
	s.send(ping(100_001))
	_, _, err := s.conn.ReadMessage()
	require.True(t, websocket.IsCloseError(err, websocket.CloseMessageTooBig), err)
	require.Equal(t, http.StatusOK, p.send(`{"query":"{__typename}"`+strings.Repeat(" ", 100_000-24)+`}`).status)
	require.Equal(t, http.StatusRequestEntityTooLarge, p.send(`{"query":"{__typename}"`+strings.Repeat(" ", 100_001-24)+`}`).status)
}

// An argument just within its bounds works. An argument outside its bounds gets a short
// BAD_USER_INPUT error, and the process stays healthy.
func TestArguments(t *testing.T) {
	p := start(t)
	token, other := p.signUp("x"), p.signUp("y")
	posted := p.ask(`mutation { createPost(input: {text: "t"}) { post { id } edge { cursor } } }`, nil, as(other)).body
	_, rest, _ := strings.Cut(posted, `"cursor":"`)
	foreign, _, found := strings.Cut(rest, `"`)
	require.True(t, found, posted)
	_, rest, _ = strings.Cut(posted, `"id":"`)
	post, _, _ := strings.Cut(rest, `"`)
	const (
		page  = `query($v: Int, $w: Int) { timeline(first: $v, last: $w) { nodes { id } } }`
		after = `query($v: Cursor) { timeline(after: $v) { nodes { id } } }`
		write = `mutation($v: String!) { createPost(input: {text: $v}) { post { id } } }`
		like  = `mutation($v: ID!) { likePost(input: {postId: $v}) { post { id } } }`
		user  = `mutation($v: ID!) { follow(input: {userId: $v}) { user { id } } }`
	)
	for _, c := range []struct {
		query string
		v, w  any
		fine  bool
	}{
		{page, nil, nil, true}, {page, 1, nil, true}, {page, 100, nil, true}, {page, nil, 100, true},
		{page, 0, nil, false}, {page, -1, nil, false}, {page, 101, nil, false}, {page, nil, 101, false}, {page, 1 << 31, nil, false},
		{page, 1, 1, false}, {page, "1", nil, false}, {page, 1.5, nil, false},
		{after, nil, nil, true}, {after, foreign, nil, false}, {after, "x", nil, false}, {after, 1, nil, false},
		{after, strings.Repeat("A", 1_000_000), nil, false},
		{write, strings.Repeat("x", 5000), nil, true}, {write, strings.Repeat("x", 5001), nil, false},
		{write, strings.Repeat("x", 1_000_000), nil, false}, {write, "a\x00b", nil, false}, {write, "a\nb", nil, true}, {write, 1, nil, false},
		{write, nil, nil, false},
		{like, post, nil, true}, {like, "1", nil, false}, {user, post, nil, false},
	} {
		variables := map[string]any{"v": c.v}
		if strings.Contains(c.query, "$w") {
			variables["w"] = c.w
		}
		got := p.ask(c.query, variables, as(token))
		what := fmt.Sprintf("%s of %.40v and %v: %.300s", c.query, c.v, c.w, got.body)
		if c.fine {
			require.NotContains(t, got.body, `"errors"`, what)
			continue
		}
		require.Contains(t, got.body, `"BAD_USER_INPUT"`, what)
		require.Less(t, len(got.body), 1000, "nothing is echoed: %s", what)
		require.Less(t, got.took, refusal, what)
	}
}
