package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// The parts of a divided job exist exactly when the job no longer does. They have its pool and
// creation time. While the end cannot be stored, there are no parts. Each part that ends finds how
// many are left.
func TestDivide(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		type numbered struct {
			Number int `json:"number"`
		}
		cfg := pushOnly()
		cfg.Pools = map[Pool]int{Large: 1} // one part at a time
		q := newQueue(t, s, cfg)
		refusals := 0
		done, lefts := make(chan *Job, 10), make(chan int, 10)
		HandleResult(q, "k", func(ctx context.Context, j *Job) (*Job, error) {
			var n numbered
			assert.NoError(t, json.Unmarshal(j.Payload, &n))
			if n.Number == 0 {
				return j, Divide(ctx, j, []numbered{{1}, {2}, {3}})
			}
			done <- j
			return j, nil
		}, func(ctx context.Context, tx *ent.Tx, jobs []*Job) error {
			if jobs[0].parts != nil {
				if refusals++; refusals == 1 {
					return errors.New("the end is refused")
				}
				return nil
			}
			left, err := q.PartsLeft(ctx, tx, jobs[0])
			lefts <- left
			return err
		})
		enqueue(t, q, Large, "k", numbered{})
		divided := onlyJob(t, q)
		enqueue(t, q, Small, "k", map[string]int64{"partOf": divided.ID}) // in another pool, so not a part
		start(t, q)
		numbers := map[int]bool{}
		for left := 2; left >= 0; left-- {
			part := receive(t, done)
			var n numbered
			require.NoError(t, json.Unmarshal(part.Payload, &n))
			numbers[n.Number] = true
			require.Equal(t, Large, part.Pool)
			require.Equal(t, 1, part.Attempt)
			require.False(t, part.Again, "the commit has pushed it, with all that it is")
			require.WithinDuration(t, divided.CreatedAt, part.CreatedAt, time.Microsecond)
			require.Equal(t, left, receive(t, lefts))
		}
		require.Equal(t, map[int]bool{1: true, 2: true, 3: true}, numbers)
		require.Equal(t, 2, refusals)
	})
}
