package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/trace/tracetest"
	"tideline/storage/storagetest"
)

// traced returns the settings with tracing of every operation, to the collector.
func traced(settings []string, to *tracetest.Collector) []string {
	return append(slices.Clone(settings), "TIDELINE_TRACES_ENDPOINT="+to.URL, "TIDELINE_TRACES_SHARE=1")
}

// journeyTo waits for a span with the name in a trace that starts with the creation of a post, and that is not in the
// traces not. It returns the span, its path to the root, and all spans.
func journeyTo(t *testing.T, collector *tracetest.Collector, name string, not ...string) (path []string, found tracetest.Span, spans []tracetest.Span) {
	t.Helper()
	spans = collector.Await(t, "a post's "+name, func(spans []tracetest.Span) bool {
		for _, s := range tracetest.Find(spans, name) {
			p := tracetest.Path(spans, s)
			if p[len(p)-1] == "mutation createPost" && !slices.Contains(not, s.Trace) {
				path, found = p, s
				return true
			}
		}
		return false
	})
	return path, found, spans
}

// The journey of a post through servers and a worker, from the mutation to the followers' sockets, is one trace.
func TestJourneyOfAPostIsOneTrace(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	collector := tracetest.New(t)
	settings := traced(shared(storagetest.Real(t)), collector)
	server := start(t, settings, "server", "--addr=127.0.0.1:0")
	worker := start(t, settings, "worker", "--worker-addr=127.0.0.1:0")
	ann, ben, cid := signUp(t, server, "ann"), signUp(t, server, "ben"), signUp(t, server, "cid")
	ben.follow(t, server, ann)
	cid.follow(t, server, ann)
	one := ben.subscribe(t, server)
	server.subscribed(1)
	ann.post(t, server, "for one")
	one.received("for one")

	path, written, spans := journeyTo(t, collector, "write to socket")
	require.Equal(t, []string{
		"write to socket", "receive added", "publish added", "fan-out page", "fan-out", "job post.created", "enqueue post.created", "mutation createPost",
	}, path)
	root := tracetest.Find(spans, "mutation createPost")[0]
	require.Equal(t, written.Trace, root.Trace)
	require.Equal(t, "server", root.Role)
	require.Equal(t, "mutation", root.Attributes["graphql.operation.type"])
	for name, role := range map[string]string{"enqueue post.created": "server", "job post.created": "worker", "publish added": "worker", "receive added": "server"} {
		for _, s := range tracetest.Find(spans, name) {
			require.Equal(t, role, s.Role, name)
		}
	}
	lock := slices.DeleteFunc(tracetest.Find(spans, "BEGIN"), func(s tracetest.Span) bool { return s.Trace != root.Trace || s.Role != "server" })
	require.NotEmpty(t, lock)
	require.Equal(t, []string{root.Trace, root.ID, "postgresql"}, []string{lock[0].Trace, lock[0].Parent, lock[0].Attributes["db.system.name"]})
	require.Contains(t, lock[0].Attributes["db.query.text"], "UPDATE users SET post_count")
	pushed := slices.ContainsFunc(spans, func(s tracetest.Span) bool {
		return s.Trace == root.Trace && s.Role == "worker" && s.Attributes["db.system.name"] == "redis"
	})
	require.True(t, pushed, "commands of the fan-out")
	for _, s := range spans {
		for _, value := range s.Attributes {
			require.NotContains(t, value, "for one", "the text of a post")
		}
	}

	// Events to several followers at one server share a span.
	two := cid.subscribe(t, server)
	server.subscribed(2)
	ann.post(t, server, "for two")
	one.received("for one", "for two")
	two.received("for two")
	path, _, _ = journeyTo(t, collector, "tell subscriptions", root.Trace)
	require.Equal(t, []string{"tell subscriptions", "receive added", "publish added", "fan-out page"}, path[:4])
	require.Zero(t, server.stop())
	require.Zero(t, worker.stop())
}

// Without TIDELINE_TRACES_ENDPOINT nothing is sent, even if the general OpenTelemetry variables are set.
func TestNothingIsTracedByDefault(t *testing.T) {
	t.Parallel()
	collector := tracetest.New(t)
	p := start(t, []string{"TIDELINE_DATA_DIR=" + t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "TIDELINE_TRACES_SHARE=1"}, "serve", "--addr=127.0.0.1:0")
	ann := signUp(t, p, "ann")
	ann.post(t, p, "one")
	require.Zero(t, p.stop())
	require.Empty(t, collector.Header())
}

// A collector that never answers delays neither posts nor the end of the process. The process has embedded stores.
func TestCollectorThatHangsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	hanging := tracetest.NewHanging(t)
	p := start(t, traced([]string{"TIDELINE_DATA_DIR=" + t.TempDir(), "TIDELINE_TRACES_HEADERS=x-scope=tide%20line"}, hanging), "serve", "--addr=127.0.0.1:0")
	ann := signUp(t, p, "ann")
	<-hanging.Asked
	require.Equal(t, "tide line", hanging.Header().Get("X-Scope"))
	ann.post(t, p, "one")
	ann.arrived(t, p, "one")
	require.Zero(t, p.stop())
}

// Delivery works if only some processes trace. A process that does not trace, or that has an older version, ignores the
// trace data in jobs and events.
func TestTracedAndUntracedProcessesTogether(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	collector := tracetest.New(t)
	settings := shared(storagetest.Real(t))
	server := start(t, traced(settings, collector), "server", "--addr=127.0.0.1:0")
	plain := start(t, settings, "server", "--addr=127.0.0.1:0")
	worker := start(t, settings, "worker", "--worker-addr=127.0.0.1:0")
	ann, ben := signUp(t, server, "ann"), signUp(t, server, "ben")
	ben.follow(t, server, ann)
	clients := []*subscriber{ben.subscribe(t, server), ben.subscribe(t, plain)}
	server.subscribed(1)
	plain.subscribed(1)
	ann.post(t, server, "to an untraced worker")
	for _, client := range clients {
		client.received("to an untraced worker")
	}
	require.Zero(t, worker.stop())
	worker = start(t, traced(settings, collector), "worker", "--worker-addr=127.0.0.1:0")
	ann.post(t, plain, "from an untraced server")
	ann.post(t, server, "through an untraced hub")
	for _, client := range clients {
		client.received("to an untraced worker", "from an untraced server", "through an untraced hub")
	}
	for _, p := range []*process{server, plain, worker} {
		require.Zero(t, p.stop())
	}
	spans := collector.Spans()
	require.Len(t, tracetest.Find(spans, "enqueue post.created"), 2, "the server's posts")
	require.Len(t, tracetest.Find(spans, "job post.created"), 1, "by the worker")
}
