package queue

import (
	"context"
	"fmt"
	"time"

	"tideline/ent/job"
	"tideline/internal/clock"
)

// Drain waits until no job is left except dead ones. It returns the error of ctx if ctx ends first.
// Some process must run the jobs meanwhile.
//
// Cost: one query by index every 0.1 s.
func (q *Queue) Drain(ctx context.Context) error {
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left, err := q.db.Job.Query().Where(job.Dead(false)).Exist(ctx)
		if err != nil {
			return fmt.Errorf("drain queue: %w", err)
		}
		if !left {
			return nil
		}
		if clock.Sleep(ctx, wait) != nil {
			return fmt.Errorf("drain queue: %w", ctx.Err())
		}
	}
}
