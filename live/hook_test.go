package live_test

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// onCommand is a Redis hook that calls the function of a command's name before each such
// command outside a pipeline.
type onCommand map[string]func()

func (o onCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o onCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if fn := o[cmd.Name()]; fn != nil {
			fn()
		}
		return next(ctx, cmd)
	}
}

func (o onCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// failures is a Redis hook. While it is on, every pipeline fails. It counts the failed pipelines.
type failures struct {
	mu sync.Mutex
	on bool
	n  int
}

func (f *failures) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *failures) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *failures) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *failures) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *failures) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f.mu.Lock()
		on := f.on
		if on {
			f.n++
		}
		f.mu.Unlock()
		if !on {
			return next(ctx, cmds)
		}
		err := errors.New("this Redis refuses")
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}
