package queue

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// The parts of a divided job exist exactly when the job no longer does. They have its pool and
// creation time. While the end cannot be stored, there are no parts.
func TestDivide(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		var refusals atomic.Int64
		done := make(chan Job, 10)
		q.Handle("k", func(_ context.Context, j *Job) error {
			if slices.Equal(j.Payload, []byte("0")) {
				j.Result = j
				return nil
			}
			done <- *j
			return nil
		})
		q.WhenDone("k", func(ctx context.Context, tx *ent.Tx, results []any) error {
			err := q.Divide(ctx, tx, results[0].(*Job), []json.RawMessage{[]byte("1"), []byte("2"), []byte("3")})
			if refusals.Add(1) == 1 {
				return errors.Join(err, errors.New("the end is refused"))
			}
			return err
		})
		enqueue(t, q, Large, "k", 0)
		whole := onlyJob(t, q)
		start(t, q)
		drain(t, q)
		require.EqualValues(t, 2, refusals.Load())
		var payloads []string
		for range 3 {
			part := receive(t, done)
			payloads = append(payloads, string(part.Payload))
			require.Equal(t, Large, part.Pool)
			require.Equal(t, 1, part.Attempt)
			require.False(t, part.Again, "the commit has pushed it, with all that it is")
			require.WithinDuration(t, whole.CreatedAt, part.CreatedAt, time.Microsecond)
		}
		slices.Sort(payloads)
		require.Equal(t, []string{"1", "2", "3"}, payloads)
		require.Empty(t, done)
		requireStreamsEmpty(t, q)
	})
}
