package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

var discard = slog.New(slog.DiscardHandler)

// kept returns a Tracer and a function that returns its finished spans from memory.
func kept(t *testing.T, share float64) (*Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	tracer, err := start(t.Context(), Config{TracesEndpoint: "http://c", TracesShare: share, Version: "1.2.3", Role: "server", Logger: discard}, memory)
	require.NoError(t, err)
	t.Cleanup(func() { tracer.Stop(t.Context()) })
	return tracer, func() tracetest.SpanStubs {
		require.NoError(t, tracer.provider.ForceFlush(t.Context()))
		return memory.GetSpans()
	}
}

func root(field string) func() []string { return func() []string { return []string{field, "another"} } }

func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "there is no such span", "%s among %v", name, spans)
	return tracetest.SpanStub{}
}

func attributes(s tracetest.SpanStub) map[string]string {
	of := map[string]string{}
	for _, a := range s.Attributes {
		of[string(a.Key)] = a.Value.String()
	}
	return of
}

// The payload of a job, and the text from Carried, continue a trace in other processes.
func TestJourneyGoesOnInOtherProcesses(t *testing.T) {
	server, ofServer := kept(t, 1)
	worker, ofWorker := kept(t, 0)
	begun := time.Now().Add(-time.Second)
	ctx, operation := server.Operation(t.Context(), begun, "mutation", "Post"+strings.Repeat("x", 100), root("createPost"))
	require.Equal(t, operation.span.SpanContext().TraceID().String(), ID(ctx))
	sending, enqueue := Send(ctx, "enqueue", "post.created")
	payload := Carry(sending, json.RawMessage(`{"post":1}`))
	require.Equal(t, payload, Carry(ctx, payload), "it has a journey already")
	enqueue.End(nil)
	operation.Fail("RATE_LIMITED")
	operation.End(nil)

	stored := bytes.ReplaceAll(payload, []byte(`:`), []byte(`: `)) // as PostgreSQL writes it
	ctx, job := worker.Job(t.Context(), "post.created", stored)
	paging, page := Begin(ctx, "fan-out page")
	page.Int("followers", 7)
	published := Carried(paging)
	page.End(context.DeadlineExceeded)
	job.End(nil)
	ctx, receive := server.Continue(t.Context(), published, "receive", "added")
	_, write := Begin(ctx, "write to socket")
	write.End(nil)
	receive.End(nil)

	spans := append(ofServer(), ofWorker()...)
	root := named(t, spans, "mutation createPost")
	require.Equal(t, trace.SpanKindServer, root.SpanKind)
	require.Equal(t, begun.UnixNano(), root.StartTime.UnixNano())
	require.Equal(t, codes.Error, root.Status.Code)
	require.Equal(t, "RATE_LIMITED", attributes(root)["error.type"])
	require.Len(t, attributes(root)["graphql.operation.name"], maxName)
	require.False(t, root.Parent.IsValid())
	before := root
	for _, name := range []string{"enqueue post.created", "job post.created", "fan-out page", "receive added", "write to socket"} {
		s := named(t, spans, name)
		require.Equal(t, root.SpanContext.TraceID(), s.SpanContext.TraceID(), name)
		require.Equal(t, before.SpanContext.SpanID(), s.Parent.SpanID(), name)
		before = s
	}
	page1 := attributes(named(t, spans, "fan-out page"))
	require.Equal(t, "7", page1["followers"])
	require.Equal(t, "timeout", page1["error.type"])
	of := map[string]string{}
	for _, a := range root.Resource.Attributes() {
		of[string(a.Key)] = a.Value.String()
	}
	require.Equal(t, []string{"tideline", "1.2.3", "server"}, []string{of["service.name"], of["service.version"], of["tideline.role"]})
	require.NotEmpty(t, of["service.instance.id"])
}

func TestCarry(t *testing.T) {
	tracer, _ := kept(t, 1)
	ctx, _ := tracer.Operation(t.Context(), time.Now(), "mutation", "", root("follow"))
	for payload, has := range map[string]bool{`{}`: true, `{"a":1}`: true, `null`: false, `[1]`: false, ``: false} {
		carried := Carry(ctx, json.RawMessage(payload))
		require.Equal(t, json.RawMessage(payload), Carry(t.Context(), json.RawMessage(payload)), "without a journey")
		if !has {
			require.Equal(t, payload, string(carried))
			continue
		}
		var fields map[string]any
		require.NoError(t, json.Unmarshal(carried, &fields), "%s", carried)
		require.Equal(t, Carried(ctx), fields["traceparent"])
	}
	for _, payload := range []string{`{"post":1}`, `{"traceparent":"x"}`, `{"traceparent":7}`, `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}`, `"traceparent"`} {
		_, span := tracer.Job(t.Context(), "post.created", json.RawMessage(payload))
		require.Nil(t, span, payload)
	}
}

// A client can neither force sampling nor make its own trace the parent.
func TestClientsTraceIsLinkedOnly(t *testing.T) {
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	none, _ := kept(t, 0)
	ctx := WithCaller(t.Context(), http.Header{"Traceparent": {caller}})
	same, span := none.Operation(ctx, time.Now(), "query", "", root("timeline"))
	require.Nil(t, span)
	require.Equal(t, ctx, same)

	all, spans := kept(t, 1)
	for _, sent := range []string{caller, "", "nonsense", strings.Repeat("0", 10_000)} {
		_, span = all.Operation(WithCaller(t.Context(), http.Header{"Traceparent": {sent}}), time.Now(), "query", "", root("timeline"))
		span.End(nil)
	}
	linked := 0
	for _, s := range spans() {
		require.False(t, s.Parent.IsValid())
		require.NotEqual(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.SpanContext.TraceID().String())
		if len(s.Links) > 0 {
			require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.Links[0].SpanContext.TraceID().String())
			linked++
		}
	}
	require.Equal(t, 1, linked)
}

func TestShareIsSampled(t *testing.T) {
	for share, bounds := range map[float64][2]int{0: {0, 0}, 0.5: {300, 700}, 1: {1000, 1000}} {
		tracer, _ := kept(t, share)
		sampled := 0
		for range 1000 {
			if _, span := tracer.Operation(t.Context(), time.Now(), "query", "", root("node")); span != nil {
				sampled++
			}
		}
		require.GreaterOrEqual(t, sampled, bounds[0], "share %v", share)
		require.LessOrEqual(t, sampled, bounds[1], "share %v", share)
	}
}

// A segment has a bounded number of spans. When it has them all, it does not continue in other
// processes.
func TestStretchIsBounded(t *testing.T) {
	tracer, spans := kept(t, 1)
	ctx, operation := tracer.Operation(t.Context(), time.Now(), "mutation", "", root("createPost"))
	for range maxSpans + 10 {
		require.NotEmpty(t, Carried(ctx))
		_, span := Begin(ctx, "page")
		span.End(nil)
		if span == nil {
			break
		}
	}
	require.Empty(t, Carried(ctx))
	_, span := Begin(ctx, "page")
	require.Nil(t, span)
	operation.End(nil)
	require.NoError(t, tracer.provider.ForceFlush(t.Context()))
	all := spans()
	require.Len(t, all, maxSpans)
	require.Equal(t, "2", attributes(named(t, all, "mutation createPost"))["tideline.spans_left_out"])
}

// Long-lived work belongs to the traces that it joins, and to none between them.
func TestJoin(t *testing.T) {
	tracer, spans := kept(t, 1)
	lasting := Joinable(t.Context())
	below := context.WithValue(lasting, callerKey{}, "")
	_, span := Begin(below, "before")
	require.Nil(t, span)
	ctx, first := tracer.Operation(t.Context(), time.Now(), "query", "", root("first"))
	Join(lasting, Here(ctx))
	require.Equal(t, ID(ctx), ID(below))
	nested, span := Begin(below, "outer")
	_, inner := Begin(nested, "inner")
	inner.End(nil)
	span.End(nil)
	Join(lasting, nil)
	_, span = Begin(below, "between")
	require.Nil(t, span)
	Join(t.Context(), Here(ctx)) // t.Context() is not joinable
	require.Empty(t, ID(t.Context()))
	first.End(nil)
	all := spans()
	require.Equal(t, named(t, all, "query first").SpanContext.SpanID(), named(t, all, "outer").Parent.SpanID())
	require.Equal(t, named(t, all, "outer").SpanContext.SpanID(), named(t, all, "inner").Parent.SpanID())
	require.Len(t, all, 3)
}

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

type state struct{ error }

func (state) SQLState() string { return "23505" }

type sqlite struct{ error }

func (sqlite) Code() int { return 5 }

func TestSpansOfStores(t *testing.T) {
	tracer, spans := kept(t, 1)
	ctx, operation := tracer.Operation(t.Context(), time.Now(), "mutation", "", root("createPost"))
	for _, err := range []error{state{errors.New("a secret")}, sqlite{errors.New("a secret")}, context.Canceled, errors.New("a secret")} {
		_, s := Statement(ctx, "postgresql", "INSERT INTO posts VALUES ($1)"+strings.Repeat("é", maxStatement))
		s.End(fmt.Errorf("insert: %w", err))
	}
	command := func(ctx context.Context, err error) {
		hooked := Commands{}.ProcessHook(func(context.Context, redis.Cmder) error { return err })
		require.Equal(t, err, hooked(ctx, redis.NewCmd(ctx, "zadd", "a secret", 1, "a secret")))
	}
	command(ctx, nil)
	command(ctx, redis.Nil)
	command(ctx, answer("NOSCRIPT no such script"))
	command(t.Context(), nil) // not traced
	pipeline := Commands{}.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
	require.NoError(t, pipeline(ctx, make([]redis.Cmder, 3)))
	require.NoError(t, pipeline(t.Context(), nil))
	operation.End(nil)

	got := map[string]int{}
	for _, s := range spans() {
		require.NotContains(t, fmt.Sprint(s.Name, attributes(s), s.Status, s.Events), "secret")
		of := attributes(s)
		require.LessOrEqual(t, len(of["db.query.text"]), maxStatement)
		got[s.Name+" "+of["db.system.name"]+of["db.operation.batch.size"]+" "+of["error.type"]]++
	}
	require.Equal(t, map[string]int{
		"INSERT postgresql 23505": 1, "INSERT postgresql SQLITE_5": 1, "INSERT postgresql canceled": 1, "INSERT postgresql _OTHER": 1,
		"ZADD redis ": 2, "ZADD redis NOSCRIPT": 1, "PIPELINE redis3 ": 1, "mutation createPost  ": 1,
	}, got)
}

// Untraced calls do not allocate, whether a Tracer exists or not.
func TestOffCostsNoAllocation(t *testing.T) {
	payload := json.RawMessage(`{"post":1}`)
	header := http.Header{"Accept": {"*/*"}}
	doors := func(tracer *Tracer) func() {
		ctx, begun := t.Context(), time.Now()
		return func() {
			ctx, s := tracer.Operation(WithCaller(ctx, header), begun, "mutation", "", root("createPost"))
			ctx, _ = tracer.Job(ctx, "post.created", Carry(ctx, payload))
			ctx, _ = tracer.Continue(ctx, Carried(ctx), "receive", "added")
			ctx, _ = Send(ctx, "publish", "added")
			ctx, page := Begin(ctx, "page")
			_, statement := Statement(ctx, "postgresql", "SELECT 1")
			statement.End(nil)
			page.Int("followers", 3000)
			page.End(nil)
			s.Fail("OK")
			s.End(nil)
			Join(ctx, Here(ctx))
			_ = ID(ctx)
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, doors(nil)))
	unsampled, _ := kept(t, 0)
	require.Zero(t, testing.AllocsPerRun(100, doors(unsampled)))
}

func BenchmarkNotSampled(b *testing.B) {
	tracer, err := start(b.Context(), Config{TracesEndpoint: "http://c", Logger: discard}, tracetest.NewNoopExporter())
	require.NoError(b, err)
	defer tracer.Stop(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		ctx, s := tracer.Operation(b.Context(), time.Time{}, "mutation", "", root("createPost"))
		_, statement := Statement(ctx, "postgresql", "SELECT 1")
		statement.End(nil)
		s.End(nil)
	}
}

func TestValidate(t *testing.T) {
	allowed := Config{TracesEndpoint: "http://127.0.0.1:4318", TracesShare: 0.01, TracesHeaders: "authorization=Basic%20dXNlcg==, x-scope=a"}
	require.NoError(t, allowed.Validate())
	headers, err := allowed.headers()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"authorization": "Basic dXNlcg==", "x-scope": "a"}, headers)
	require.NoError(t, Config{}.Validate())
	for want, c := range map[string]Config{
		"TracesEndpoint is not allowed": {TracesEndpoint: "127.0.0.1:4318"},
		"TracesEndpoint is":             {TracesEndpoint: "http://user:secret@c"},
		"TracesEndpoint":                {TracesEndpoint: "grpc://c:4317"},
		"TracesShare is NaN: it must":   {TracesShare: math.NaN()},
		"TracesShare is -0.1":           {TracesShare: -0.1},
		"TracesShare is 1.1":            {TracesShare: 1.1},
		"TracesHeaders cannot":          {TracesHeaders: "secret"},
		"TracesHeaders":                 {TracesHeaders: "a=%zzsecret"},
		"TracesHeaders cannot be read":  {TracesHeaders: "a=secret%0d%0a"},
	} {
		err := c.Validate()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		_, err = Start(t.Context(), c)
		require.Error(t, err)
	}
	for endpoint, want := range map[string]string{
		"http://c:4318": "http://c:4318/v1/traces", "http://c/": "http://c/v1/traces", "https://c/otlp": "https://c/otlp/v1/traces", "https://c/v1/traces": "https://c/v1/traces",
	} {
		require.Equal(t, want, Config{TracesEndpoint: endpoint}.url())
	}
	off, err := Start(t.Context(), Config{TracesShare: 1})
	require.NoError(t, err)
	require.Nil(t, off)
	off.Stop(t.Context())
}

// A collector that never answers delays nothing. A collector that rejects spans is logged once.
func TestCollectorAway(t *testing.T) {
	asked, hang := make(chan struct{}, 100), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer collector.Close()
	defer close(hang)
	var log bytes.Buffer
	tracer, err := Start(t.Context(), Config{TracesEndpoint: collector.URL, TracesShare: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	for range 3 * maxWaiting { // more than the queue holds
		_, span := tracer.Operation(t.Context(), time.Now(), "query", "", root("node"))
		span.End(nil)
	}
	<-asked
	tracer.Stop(t.Context()) // returns although the collector never answered
	require.Contains(t, log.String(), "the last spans are not sent")
	require.Zero(t, tracer.Stats().Sent)
}

type refusing struct {
	sdk.SpanExporter
	err error
}

func (r *refusing) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return r.err }

func TestCollectorRefuses(t *testing.T) {
	var log bytes.Buffer
	collector := &refusing{tracetest.NewNoopExporter(), errors.New("full")}
	tracer, err := start(t.Context(), Config{TracesEndpoint: "http://c", TracesShare: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}, collector)
	require.NoError(t, err)
	send := func() {
		_, span := tracer.Operation(t.Context(), time.Now(), "query", "", root("node"))
		span.End(nil)
		require.NoError(t, tracer.provider.ForceFlush(t.Context()))
	}
	send()
	send()
	collector.err = nil
	send()
	send()
	tracer.Stop(t.Context())
	require.Equal(t, Stats{Sent: 2, Lost: 2}, tracer.Stats())
	require.Equal(t, 1, strings.Count(log.String(), "takes no spans"))
	require.Equal(t, 1, strings.Count(log.String(), "takes spans again"))
}
