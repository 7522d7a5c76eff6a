package live_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/internal/trace"
	"tideline/internal/trace/tracetest"
	"tideline/live"
	"tideline/storage/storagetest"
)

// An event about a post carries its trace to hubs that have a tracer. For all other hubs the event looks as if it had
// no trace.
func TestEventGoesOnWithItsJourney(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		collector := tracetest.New(t)
		tracer, err := trace.Start(t.Context(), trace.Config{TracesEndpoint: collector.URL, TracesShare: 1, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		traces, _ := run(t, rdb, live.HubConfig{Sharded: sharded, Tracer: tracer})
		plain, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		readers := []reader{subscribe(t, traces, 10), subscribe(t, traces, 20), subscribe(t, plain, 10)}

		ctx, operation := tracer.Operation(t.Context(), time.Now(), "mutation", "", func() []string { return []string{"createPost"} })
		ev := live.Event{Kind: live.Added, Post: 7, Author: 8, Reason: live.Edited}
		told := live.Event{Kind: live.Invalidated, Reason: "for the client"}
		for _, sent := range []live.Event{ev, told} {
			reached, err := live.NewPublisher(rdb, sharded).Publish(ctx, sent, []int64{10, 20})
			require.NoError(t, err)
			require.Equal(t, 3, reached)
		}
		operation.End(nil)
		joined := 0
		for _, r := range readers {
			got, _ := r.take(t)
			lasting := trace.Joinable(t.Context())
			if got.Batch.Trace(lasting); trace.ID(lasting) != "" {
				require.Equal(t, trace.ID(ctx), trace.ID(lasting))
				joined++
			}
			got.Batch.Trace(lasting)
			require.Empty(t, trace.ID(lasting), "one stands for all")
			got.Batch = nil
			require.Equal(t, ev, got)
			require.Equal(t, told, next(t, r))
		}
		require.Equal(t, 1, joined)
		tracer.Stop(t.Context())
		spans := collector.Spans()
		received := tracetest.Find(spans, "receive added")
		require.Len(t, received, 1)
		require.Equal(t, []string{"receive added", "publish added", "mutation createPost"}, tracetest.Path(spans, received[0]))
		require.Empty(t, tracetest.Find(spans, "receive invalidated"))
	})
}
