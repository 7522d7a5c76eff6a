package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/clock"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func benchEach(b *testing.B, fn func(b *testing.B, s *storage.Stores)) {
	b.Run("sqlite+embedded", func(b *testing.B) { fn(b, storagetest.Embedded(b)) })
	b.Run("postgres+redis", func(b *testing.B) { fn(b, storagetest.Real(b)) })
}

// BenchmarkIdleToStart runs one job at a time. It measures the time to the start of the handler
// from the push, and from the beginning of the commit. The floor is a bare XADD to a blocked
// XREADGROUP.
func BenchmarkIdleToStart(b *testing.B) {
	benchEach(b, func(b *testing.B, s *storage.Stores) {
		b.Run("floor", func(b *testing.B) {
			ctx := b.Context()
			require.NoError(b, s.Redis.XGroupCreateMkStream(ctx, "floor", "w", "0").Err())
			begun := make(chan time.Time)
			go func() {
				for range b.N {
					err := s.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
						Group: "w", Consumer: "c", Streams: []string{"floor", ">"}, Count: 1, Block: time.Minute,
					}).Err()
					if err != nil {
						b.Error(err)
					}
					begun <- time.Now()
				}
			}()
			measure(b, begun, func() {
				require.NoError(b, s.Redis.XAdd(ctx, &redis.XAddArgs{Stream: "floor", Values: []string{"id", "1"}}).Err())
			})
			require.NoError(b, s.Redis.Del(ctx, "floor").Err())
		})
		q := newQueue(b, s, Config{})
		begun := make(chan time.Time)
		q.Handle("k", func(context.Context, *Job) error { begun <- time.Now(); return nil })
		start(b, q)
		b.Run("push", func(b *testing.B) {
			id := int64(1 << 40) // the job has no row, so finishing it deletes nothing
			measure(b, begun, func() {
				id++
				_, err := q.streamOf(Small).push(b.Context(), entry{job: id, kind: "k", payload: []byte(`{"post":123}`)})
				require.NoError(b, err)
			})
		})
		b.Run("commit", func(b *testing.B) {
			measure(b, begun, func() { enqueue(b, q, Small, "k", map[string]int{"post": 123}) })
		})
	})
}

// measure reports the time from each call of cause to the value that it makes begun receive.
func measure(b *testing.B, begun <-chan time.Time, cause func()) {
	took := make([]time.Duration, b.N)
	for i := range took {
		_ = clock.Sleep(b.Context(), time.Millisecond) // the reader is idle again
		from := time.Now()
		done := make(chan time.Time)
		go func() { done <- <-begun }()
		cause()
		took[i] = (<-done).Sub(from)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkJobs runs a backlog of jobs that do nothing. The floor passes the same number of entries
// through a stream, with reads of the same size and one acknowledgement per entry.
func BenchmarkJobs(b *testing.B) {
	const workers = 8
	benchEach(b, func(b *testing.B, s *storage.Stores) {
		b.Run("floor", func(b *testing.B) {
			ctx := b.Context()
			require.NoError(b, s.Redis.XGroupCreateMkStream(ctx, "floor", "w", "0").Err())
			for range b.N {
				require.NoError(b, s.Redis.XAdd(ctx, &redis.XAddArgs{Stream: "floor", Values: []string{"id", "1"}}).Err())
			}
			b.ResetTimer()
			for n := 0; n < b.N; {
				got, err := s.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: "w", Consumer: "c", Streams: []string{"floor", ">"}, Count: workers,
				}).Result()
				require.NoError(b, err)
				_, err = s.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, m := range got[0].Messages {
						p.XAck(ctx, "floor", "w", m.ID)
						p.XDel(ctx, "floor", m.ID)
						n++
					}
					return nil
				})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			require.NoError(b, s.Redis.Del(ctx, "floor").Err())
		})
		b.Run("queue", func(b *testing.B) {
			q := newQueue(b, s, Config{Pools: map[Pool]int{Small: workers}})
			q.Handle("k", func(context.Context, *Job) error { return nil })
			for range b.N {
				enqueue(b, q, Small, "k", map[string]int{"post": 123})
			}
			enqueued := float64(b.N) / b.Elapsed().Seconds()
			b.ResetTimer()
			start(b, q)
			drain(b, q)
			b.ReportMetric(enqueued, "commits/s")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	})
}
