package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tideline/feed/stream"
	"tideline/feed/webhook"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/workers"
)

// answers returns an Asked whose parts report nothing.
func answers() Asked {
	return Asked{
		Queue:    func(context.Context) (queue.Stats, error) { return queue.Stats{}, nil },
		Webhooks: func(context.Context) (webhook.Stats, error) { return webhook.Stats{}, nil },
		Stores:   func(context.Context) (storage.State, error) { return storage.State{}, nil },
	}
}

// scrape makes one scrape.
func scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := New("1.2.3", "abc")
	m.CountSockets(func() int { return 3 })
	m.CountHub(func() live.Stats { return live.Stats{Received: 4, Lagged: 5} })
	m.Request("query", "OK", time.Millisecond)
	m.Subscribed(1)
	m.Subscribed(1)
	m.Subscribed(-1)
	m.SlowSocket()
	m.TimelineRead(true)
	m.TimelineRead(false)
	m.Attempt(queue.Result{Kind: "post.created", Pool: queue.Small, Attempt: 1, Outcome: queue.Done})
	m.FanOut(workers.FanOutReport{Kind: "post.created", Followers: 10, Pushed: 4, Live: 2})
	m.Webhook(webhook.Failed, time.Second)
	m.CountStreams(func() stream.Stats {
		return stream.Stats{CatchingUp: 16, Waiting: 9, Invalidated: map[stream.Cause]uint64{stream.TooManyPosts: 3}}
	})
	m.CountSpans(func() trace.Stats { return trace.Stats{Sent: 8, Lost: 7} })
	asked, all := 0, answers()
	all.Queue = func(context.Context) (queue.Stats, error) {
		asked++
		return queue.Stats{Dead: 2, Pools: map[queue.Pool]queue.PoolStats{queue.Large: {Depth: 5, Oldest: time.Minute}}}, nil
	}
	all.Webhooks = func(context.Context) (webhook.Stats, error) {
		return webhook.Stats{Pending: 3, Dead: 4, Oldest: time.Minute}, nil
	}
	handler := m.Handler(all, slog.New(slog.DiscardHandler))
	scrape(handler)
	scraped := scrape(handler)
	require.Equal(t, 1, asked, "scrapes in one second share an answer")
	for _, want := range []string{
		`tideline_build_info{commit="`, `tideline_graphql_requests_total{code="OK",kind="query"} 1`,
		`tideline_graphql_request_seconds_count{kind="query"} 1`,
		`tideline_timeline_reads_total{inbox="hit"} 1`,
		`tideline_jobs_total{kind="post.created",outcome="done",pool="small"} 1`,
		`tideline_fanout_deliveries_total{to="inbox"} 4`,
		`tideline_queue_jobs{pool="large"} 5`,
		`tideline_queue_oldest_seconds{pool="large"} 60`,
		`tideline_jobs_lagging 1`,
		`tideline_jobs_dead 2`, `tideline_sockets 3`, `tideline_live_subscriptions 1`, `tideline_slow_sockets_total 1`,
		`tideline_webhooks_total{outcome="failed"} 1`, `tideline_webhook_seconds_count 1`, `tideline_webhooks_pending 3`, `tideline_webhooks_dead 4`,
		`tideline_webhooks_oldest_seconds 60`, `tideline_live_messages_total 4`, `tideline_live_lagged_total 5`, `tideline_live_connects_total 0`, `go_goroutines `,
		`tideline_streams{state="catching_up"} 16`, `tideline_streams{state="waiting"} 9`,
		`tideline_streams_invalidated_total{reason="too_many_posts"} 3`,
		`tideline_trace_spans_total{outcome="sent"} 8`, `tideline_trace_spans_total{outcome="lost"} 7`,
	} {
		require.Contains(t, scraped, want)
	}
}

// Every count of a hub is exported.
func TestAllThatAHubCountsIsExported(t *testing.T) {
	for i := range reflect.TypeFor[live.Stats]().NumField() {
		var stats live.Stats
		reflect.ValueOf(&stats).Elem().Field(i).SetUint(7)
		m := &Metrics{registry: prometheus.NewRegistry()}
		m.CountHub(func() live.Stats { return stats })
		families, err := m.registry.Gather()
		require.NoError(t, err)
		sum := 0.0
		for _, family := range families {
			sum += family.GetMetric()[0].GetCounter().GetValue()
		}
		require.InDelta(t, 7, sum, 0, reflect.TypeFor[live.Stats]().Field(i).Name)
	}
}

// The alarm works without a worker in the process. If the queue cannot be counted, the alarm does not change.
func TestLagAlarm(t *testing.T) {
	m := New("1.2.3", "abc")
	var oldest time.Duration
	var failure error
	all := answers()
	all.Queue = func(context.Context) (queue.Stats, error) {
		if failure != nil {
			return queue.Stats{}, failure
		}
		return queue.Stats{Pools: map[queue.Pool]queue.PoolStats{
			queue.Small: {Depth: 1, Oldest: oldest}, queue.Large: {},
		}}, nil
	}
	alarm := func() string {
		scraped := scrape(m.Handler(all, slog.New(slog.DiscardHandler)))
		return regexp.MustCompile(`(?m)^tideline_jobs_lagging (.+)$`).FindStringSubmatch(scraped)[1]
	}
	require.Equal(t, "0", alarm())
	oldest = workers.LagLimit + time.Second
	require.Equal(t, "1", alarm())
	m.Health(workers.Health{Sampled: 3})
	failure = errors.New("the database is away")
	require.Equal(t, "1", alarm())
	failure, oldest = nil, time.Second
	require.Equal(t, "0", alarm())
}

// The state of the stores is exported. If a store does not answer, its last known state stays.
func TestStores(t *testing.T) {
	m := New("1.2.3", "abc")
	var now storage.State
	var failure error
	all := answers()
	all.Stores = func(context.Context) (storage.State, error) { return now, failure }
	ask := func() string { return scrape(m.Handler(all, slog.New(slog.DiscardHandler))) }
	embedded := ask()
	require.Contains(t, embedded, `tideline_sql_connections_max 0`)
	require.NotContains(t, embedded, "tideline_redis_", "there are no masters")
	require.NotContains(t, embedded, "tideline_sql_server_", "only PostgreSQL has a bound")

	now.SQL = storage.SQLState{Up: true, Bytes: 4096, Connections: 90, MostConnections: 97}
	now.SQL.Pool.MaxOpenConnections, now.SQL.Pool.InUse, now.SQL.Pool.Idle, now.SQL.Pool.WaitCount, now.SQL.Pool.WaitDuration = 20, 3, 2, 5, time.Second
	now.RedisUp, now.RedisPool = true, storage.RedisPool{Open: 9, Idle: 7, Timeouts: 1}
	now.Masters = []storage.MasterState{{Addr: "r:1", Version: "7.0.15", Incarnation: "a", Used: 80, Most: 100, Clients: 4, EvictedKeys: 6}}
	told := []string{
		`tideline_sql_connections{state="in_use"} 3`, `tideline_sql_connections{state="idle"} 2`, `tideline_sql_connections_max 20`,
		`tideline_sql_waits_total 5`, `tideline_sql_wait_seconds_total 1`, `tideline_sql_bytes 4096`,
		`tideline_sql_server_connections 90`, `tideline_sql_server_connections_max 97`,
		`tideline_redis_connections{state="in_use"} 2`, `tideline_redis_connections{state="idle"} 7`, `tideline_redis_timeouts_total 1`,
		`tideline_redis_info{incarnation="a",master="r:1",version="7.0.15"} 1`,
		`tideline_redis_memory_bytes{master="r:1"} 80`, `tideline_redis_memory_max_bytes{master="r:1"} 100`,
		`tideline_redis_evicted_keys_total{master="r:1"} 6`, `tideline_redis_clients{master="r:1"} 4`,
	}
	scraped := ask()
	for _, want := range told {
		require.Contains(t, scraped, "\n"+want+"\n")
	}

	pool := now.SQL.Pool
	pool.InUse, failure = 20, errors.New("both are away")
	now = storage.State{SQL: storage.SQLState{Pool: pool}, RedisPool: now.RedisPool}
	scraped = ask()
	require.Contains(t, scraped, `tideline_sql_connections{state="in_use"} 20`, "the pool is of this process")
	for _, want := range told[1:] {
		require.Contains(t, scraped, "\n"+want+"\n")
	}

	now.RedisUp, now.Masters = true, []storage.MasterState{{Addr: "r:1", Incarnation: "b"}}
	scraped = ask()
	require.Contains(t, scraped, `incarnation="b"`)
	require.NotContains(t, scraped, `incarnation="a"`)
}
