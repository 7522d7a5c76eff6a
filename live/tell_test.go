package live_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

// An event for several users is in the buffers at once, and its readers are notified when it is
// prepared. The reader of an event for one user is notified at once. A reader that cannot handle the
// event yet is notified again.
func TestEventForManyIsPrepared(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		preparing, prepared := make(chan live.Event, 1), make(chan struct{})
		var times atomic.Int64
		h.Prepare(func(ctx context.Context, ev live.Event) {
			if times.Add(1) > 1 {
				return
			}
			preparing <- ev
			select {
			case <-prepared:
			case <-ctx.Done():
			}
		})
		one, two, three := subscribe(t, h, 1), subscribe(t, h, 2), subscribe(t, h, 3)
		told, made := make(chan live.Event, 2), make(chan struct{})
		asked, calls := make(chan struct{}, 2), 0
		two.SetTell(func() <-chan struct{} {
			asked <- struct{}{}
			if calls++; calls == 1 {
				return made
			}
			ev, _ := two.Take() // possible because the caller holds no lock
			told <- ev
			return nil
		})
		publish := func(post int64, users ...int64) {
			reached, err := live.NewPublisher(rdb, sharded).Publish(t.Context(), live.Event{Kind: live.Added, Post: post}, users)
			require.NoError(t, err)
			require.Equal(t, len(users), reached)
		}
		publish(7, 1, 2)
		require.Equal(t, []int64{1, 2}, (<-preparing).Batch.Users)
		for _, r := range []reader{one, two} {
			ev, waits := r.Peek()
			require.True(t, waits)
			require.EqualValues(t, 7, ev.Post)
			require.Zero(t, r.Covered(), "an event waits")
			require.Empty(t, r.news, "told before it was prepared")
		}
		publish(8, 3)
		ev, ok := three.take(t)
		require.True(t, ok)
		require.EqualValues(t, 8, ev.Post)
		require.Empty(t, one.news)

		close(prepared)
		<-one.news
		<-asked
		require.Empty(t, told)
		close(made)
		require.EqualValues(t, 7, (<-told).Post)
		require.Len(t, asked, 1)
		require.Empty(t, two.news, "told by tell alone")
	})
}
