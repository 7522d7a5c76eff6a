package queue

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/internal/trace"
	"tideline/internal/trace/tracetest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// Each attempt of a job continues the trace that enqueued the job, whether it comes from an entry
// of the commit or from the row. Handlers, including those of an older version, read the same
// payload with and without a trace.
func TestJobGoesOnWithItsJourney(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		collector := tracetest.New(t)
		tracer, err := trace.Start(t.Context(), trace.Config{TracesEndpoint: collector.URL, TracesShare: 1, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		cfg := brisk()
		cfg.Tracer = tracer
		q := newQueue(t, s, cfg)
		type payload struct {
			Post int64 `json:"post"`
		}
		attempts := make(chan payload, 2)
		q.Handle("k", func(ctx context.Context, j *Job) error {
			var p payload
			if err := json.Unmarshal(j.Payload, &p); err != nil || trace.ID(ctx) == "" {
				return GiveUp(errors.Join(err, errors.New("it is on no journey")))
			}
			attempts <- p
			if j.Attempt == 1 {
				return errors.New("once more")
			}
			return nil
		})
		ctx, operation := tracer.Operation(t.Context(), time.Now(), "mutation", "", func() []string { return []string{"createPost"} })
		tx, err := q.db.Tx(ctx)
		require.NoError(t, err)
		require.NoError(t, q.Enqueue(ctx, tx, Small, "k", payload{7}))
		require.NoError(t, tx.Commit())
		operation.End(nil)
		stop := start(t, q)
		for range 2 {
			require.Equal(t, payload{7}, receive(t, attempts))
		}
		drain(t, q)
		stop()
		tracer.Stop(t.Context())

		spans := collector.Spans()
		jobs := tracetest.Find(spans, "job k")
		require.Len(t, jobs, 2)
		for _, job := range jobs {
			require.Equal(t, []string{"job k", "enqueue k", "mutation createPost"}, tracetest.Path(spans, job))
		}
		require.True(t, slices.ContainsFunc(jobs, func(j tracetest.Span) bool { return j.Attributes["error.type"] == string(Failed) }))
		commit := tracetest.Find(spans, "COMMIT")
		require.NotEmpty(t, commit)
		require.Equal(t, []string{"COMMIT", "mutation createPost"}, tracetest.Path(spans, commit[0]))
	})
}
