package live_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/live"
	"tideline/storage/storagetest"
)

// Only some messages for many are prepared at the same time. Those that take long hold up
// no others, and none keeps its turn for good.
func TestMessagesForManyTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := live.NewHub(nil, live.HubConfig{})
		const burst = 3 * live.Turns
		begun, goOn := make(chan struct{}, 2*burst), make(chan struct{})
		told := make(chan struct{}, 2*burst)
		for range burst {
			go func() {
				leave := h.PrepareInTurn(t.Context(), func() {
					begun <- struct{}{}
					<-goOn
				})
				told <- struct{}{}
				leave()
			}()
		}
		synctest.Wait()
		require.Len(t, begun, live.Turns)
		time.Sleep(live.TurnTimeout)
		synctest.Wait()
		require.Len(t, begun, 2*live.Turns, "those that take long hold up others")
		close(goOn)
		synctest.Wait()
		require.Len(t, told, burst)
		require.Zero(t, h.Taken())

		for range burst { // it takes long each time
			go func() {
				leave := h.PrepareInTurn(t.Context(), func() { time.Sleep(10 * live.TurnTimeout) })
				told <- struct{}{}
				leave()
			}()
		}
		time.Sleep(time.Minute)
		require.Len(t, told, 2*burst)
		require.Zero(t, h.Taken())
	})
}

// All of a burst for many comes to each of them, in its order, also when more messages
// than there are turns cannot be prepared for a while.
func TestBurstForMany(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, sharded bool) {
		h, _ := run(t, rdb, live.HubConfig{Sharded: sharded})
		const many, burst = 300, 2 * live.Turns
		begun, goOn := make(chan struct{}, burst), make(chan struct{})
		h.Prepare(func(ctx context.Context, _ live.Event) {
			select {
			case begun <- struct{}{}:
			default: // once more
			}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		})
		readers, users := make([]reader, many), make([]int64, many)
		for i := range readers {
			users[i] = int64(i + 1)
			readers[i] = subscribe(t, h, users[i])
		}
		for post := range burst {
			_, err := live.NewPublisher(rdb, sharded).Publish(t.Context(), live.Event{Kind: live.Added, Post: int64(post + 1)}, users)
			require.NoError(t, err)
		}
		for range burst {
			<-begun
		}
		for _, r := range readers {
			require.False(t, r.Waits(), "the hub will tell of what is being prepared")
			require.Empty(t, r.news)
		}
		close(goOn)
		for _, r := range readers {
			for post := range burst {
				ev, ok := r.take(t)
				require.True(t, ok)
				require.EqualValues(t, post+1, ev.Post)
			}
		}
	})
}
