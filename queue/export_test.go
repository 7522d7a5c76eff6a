package queue

import (
	"context"
	"fmt"
	"time"

	"tideline/ent/job"
)

// Drain waits until no process has a job left, except dead ones. When ctx ends
// first, it returns the error of ctx. Some process must run the jobs meanwhile.
//
// Cost: a look-up by index every 0.1 s.
func (q *Queue) Drain(ctx context.Context) error {
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left, err := q.db.Job.Query().Where(job.Dead(false)).Exist(ctx)
		if err != nil {
			return fmt.Errorf("drain queue: %w", err)
		}
		if !left {
			return nil
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("drain queue: %w", ctx.Err())
		}
	}
}
