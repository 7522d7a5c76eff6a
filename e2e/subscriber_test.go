package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// modern is the WebSocket subprotocol.
const modern = "graphql-transport-ws"

// subscriber is a client.mjs process that follows a user's timeline.
type subscriber struct {
	t      *testing.T
	mu     sync.Mutex
	events []event
}

// event is a line printed by client.mjs.
type event struct {
	Event string
	Data  struct {
		TimelineEvents struct {
			Typename string `json:"__typename"`
			Edge     struct {
				Node struct{ Text string }
			}
		}
	}
	Errors []json.RawMessage
	Code   int
	Error  string
}

// needClients skips the test if node or the npm packages are missing. With
// TIDELINE_TEST_REQUIRE_REAL=1 the test fails instead.
func needClients(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("node_modules")
	}
	if err == nil {
		return
	}
	if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("the npm clients are required here (npm ci in e2e): %v", err)
	}
	t.Skipf("SKIPPED, NOT TESTED WITH THE NPM CLIENTS (npm ci in e2e): %v", err)
}

// subscribe starts a client that subscribes after the position, if one is given. The client
// ends with the test.
func (u user) subscribe(t *testing.T, p *process, after ...string) *subscriber {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node",
		append([]string{"client.mjs", "ws" + strings.TrimPrefix(p.url, "http") + "/graphql", u.token}, after...)...)
	_, err := cmd.StdinPipe() // the client ends when this pipe closes, at the latest when the test process ends
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	s := &subscriber{t: t}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("client.mjs printed %q: %v", lines.Text(), err)
			}
			s.mu.Lock()
			s.events = append(s.events, e)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-read
		_ = cmd.Wait()
	})
	return s
}

func (s *subscriber) seen() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// posts returns the texts of the posts received so far, in order of arrival.
func (s *subscriber) posts() []string {
	texts := []string{}
	for _, e := range s.seen() {
		if e.Data.TimelineEvents.Typename == "TimelinePostAdded" {
			texts = append(texts, e.Data.TimelineEvents.Edge.Node.Text)
		}
	}
	return texts
}

// received waits until the client has received exactly these posts since its start, each once.
// Any order is fine, because fan-outs can overtake each other.
func (s *subscriber) received(texts ...string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Subset(c, s.posts(), texts)
	}, patience, poll)
	require.ElementsMatch(s.t, texts, s.posts())
	for _, e := range s.seen() {
		require.Empty(s.t, e.Errors)
		require.NotEqual(s.t, "error", e.Event, e.Error)
	}
}

// closed waits until a connection has been closed and returns the first close code.
func (s *subscriber) closed() (code int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, e := range s.seen() {
			if e.Event == "closed" {
				code = e.Code
				return true
			}
		}
		return false
	}, patience, poll, "waiting for the connection to be closed")
	return code
}
