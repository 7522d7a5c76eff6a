package timeline_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestChangeOwn(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, clock := newStore(t, rdb)
		ctx := t.Context()
		build(t, s, timeline.Inbox(1), []int64{3}, 0)
		build(t, s, timeline.Outbox(1), []int64{2}, 0)
		_, err := s.Latest.IDs(ctx, []int64{1})
		require.NoError(t, err)
		requireOwn := func(inbox, outbox []int64) {
			t.Helper()
			for k, want := range map[timeline.Key][]int64{timeline.Inbox(1): inbox, timeline.Outbox(1): outbox} {
				ids, cov, err := s.Feeds.Page(ctx, k, timeline.Range{Limit: 10})
				require.NoError(t, err)
				require.Equal(t, timeline.Ready, cov.State)
				require.Equal(t, want, ids, k)
			}
		}
		require.Zero(t, s.Own.Change(ctx, timeline.OwnChange{Author: 1, Post: 5, Watch: 77}))
		requireOwn([]int64{5, 3}, []int64{5, 2})
		_, whole, err := s.Fences.Fenced(ctx, 1, 77, clock.Now())
		require.NoError(t, err)
		require.True(t, whole)
		require.Zero(t, s.Own.Change(ctx, timeline.OwnChange{Author: 1, Post: 5, Gone: true}))
		requireOwn([]int64{3}, []int64{2})

		// A part that fails does not stop the others.
		for _, refused := range []string{"tl:{i1}", "tl:{o1}:m", ":f"} {
			h := &refusal{key: refused}
			rdb.AddHook(h)
			id := int64(10)
			done := s.Own.Change(ctx, timeline.OwnChange{Author: 1, Post: id, Watch: 78})
			h.key = "none"
			require.Equal(t, refused == "tl:{i1}", done.Inbox != nil)
			require.Equal(t, refused == "tl:{o1}:m", done.Outbox != nil)
			require.Equal(t, refused == ":f", done.Watch != nil)
			require.Zero(t, s.Own.Change(ctx, timeline.OwnChange{Author: 1, Post: id, Gone: true}))
			requireOwn([]int64{3}, []int64{2})
		}
		require.Error(t, s.Own.Change(ctx, timeline.OwnChange{Author: 1}).Inbox, "no post")
	})
}

// refusal is a hook that returns an error for scripts whose first key contains a text.
type refusal struct{ key string }

func (r *refusal) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if args := cmd.Args(); len(args) > 3 && strings.Contains(args[3].(string), r.key) {
				cmd.SetErr(errors.New("refused"))
			}
		}
		return err
	}
}
