package alarms

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// fixture is a server and a worker with their own PostgreSQL and Redis, watched by a Prometheus.
// Ben follows ann and has a timeline.
type fixture struct {
	*prometheus
	stores         *storage.Stores
	settings       []string
	server, worker *worldtest.Process
	ann, ben       worldtest.User
}

func newFixture(t *testing.T, more ...string) *fixture {
	t.Helper()
	needPrometheus(t)
	stores := storagetest.Real(t)
	h := &fixture{stores: stores, settings: append([]string{
		"TIDELINE_DATABASE_URL=" + storagetest.Config(stores).DatabaseURL, "TIDELINE_REDIS_URL=" + storagetest.Config(stores).RedisURL,
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off",
	}, more...)}
	h.server = worldtest.NewProcess(t, binary, h.settings, "--addr", "server")
	h.worker = worldtest.NewProcess(t, binary, h.settings, "--worker-addr", "worker")
	h.prometheus = watch(t, h.server.URL, h.worker.URL)
	var err error
	h.ann, err = worldtest.NewUser(t.Context(), stores, 1, "ann")
	require.NoError(t, err)
	h.ben, err = worldtest.NewUser(t.Context(), stores, 2, "ben")
	require.NoError(t, err)
	require.NoError(t, worldtest.Follow(t.Context(), stores, h.ben, h.ann))
	h.read(t)
	return h
}

// post makes ann create a post.
func (h *fixture) post(t *testing.T) {
	t.Helper()
	require.NoError(t, post(t, h.server, h.ann.Token))
}

func post(t *testing.T, p *worldtest.Process, token string) error {
	return p.Call(t.Context(), token, `mutation { createPost(input: {text: "hello", visibility: PUBLIC}) { post { id } } }`, nil, nil)
}

// read makes ben read the timeline.
func (h *fixture) read(t *testing.T) {
	t.Helper()
	_, err := h.ben.Timeline(t.Context(), h.server)
	require.NoError(t, err)
}

// arrived waits until ben's inbox in Redis has n posts, whose scores are below 0. The only other
// entry is the end mark, with score 0.
func (h *fixture) arrived(t *testing.T, n int) {
	t.Helper()
	await(t, nil, "the posts are in the inbox", func() bool {
		have, err := h.stores.Redis.ZCount(t.Context(), inbox, "-inf", "(0").Result()
		require.NoError(t, err)
		return int(have) == n
	})
}

// inbox is the key of ben's inbox.
const inbox = "tl:{i2}:z"

// exec executes an SQL statement and returns the number of affected rows.
func (h *fixture) exec(t *testing.T, statement string) (rows int64) {
	t.Helper()
	result, err := h.stores.SQL.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	rows, err = result.RowsAffected()
	require.NoError(t, err)
	return rows
}

// run runs a tideline command with the fixture's settings and returns its output.
func (h *fixture) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TIDELINE_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, h.settings...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "tideline %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

// listen starts clients that subscribe to ben's timeline. Each client opens its event stream
// again when the stream ends. The clients stop when the test ends.
func (h *fixture) listen(t *testing.T, clients int) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { leave(); all.Wait() })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				h.stream(ctx, client)
			}
		})
	}
	await(t, nil, "all clients listen", func() bool { return h.server.Subscriptions(t.Context()) == clients })
}

// stream opens an event stream and reads it until it ends, for whatever reason.
func (h *fixture) stream(ctx context.Context, client *http.Client) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.server.URL+"/graphql",
		strings.NewReader(`{"query": "subscription { timelineEvents { __typename } }"}`))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", "Bearer "+h.ben.Token)
	response, err := client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
	}
}
