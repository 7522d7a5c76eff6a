package workers

import (
	"context"
	"time"

	"tideline/internal/batch"
)

const (
	// keepList is how long a list of active users is kept.
	keepList = 10 * time.Second
	// listTimeout bounds the read of a list of active users.
	listTimeout = time.Minute
)

// activeList is a list of active users. The parts of one fan-out that run in this process share it,
// so that it is read once for all. The post is committed before its jobs, so users who become active
// after the list was read find the post in SQL.
type activeList[T any] struct {
	of    postFanOut
	users T // must not be changed
}

// postFanOut identifies a fan-out. All its parts have the same since.
type postFanOut struct{ post, since int64 }

// activeUsers returns the list of active users of the fan-out that r is a part of. A later attempt
// reads a list of its own: it must reach every user that an attempt in another process has pushed to,
// and the list of that process may be newer than the shared list.
func activeUsers[T any](
	ctx context.Context, r *followerScan, shared *batch.Shared[activeList[T]], read func(context.Context) (T, error),
) (T, error) {
	if r.Job.Again {
		return read(ctx)
	}
	of := postFanOut{r.Post, r.Job.CreatedAt.UnixMicro()}
	l, err := shared.Get(ctx, func(l activeList[T]) bool { return l.of == of }, func(ctx context.Context) (activeList[T], error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		users, err := read(ctx)
		time.AfterFunc(keepList, shared.Forget) // it may take much memory
		return activeList[T]{of, users}, err
	})
	return l.users, err
}
