package live_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/storage/storagetest"
)

// Measures 3,000 recipients, from Publish to the last subscriber. The baselines are
// one raw PUBLISH of as many bytes to one raw Receive, and the look-up without a message.
func BenchmarkPublish(b *testing.B) {
	const page = 3000
	rdb := serverClient(b, storagetest.StartRedis(b))
	h, _ := run(b, rdb, live.HubConfig{})
	p := live.NewPublisher(rdb, false)
	subs := subscribeAll(b, h, page)
	users := ids(page, 1)
	for _, percent := range []int{0, 20, 100} {
		b.Run(fmt.Sprintf("live=%d%%", percent), func(b *testing.B) {
			present := page * percent / 100
			to := append(ids(page-present, 1_000_000), users[:present]...)
			for b.Loop() {
				require.Equal(b, present, publish(b, p, 1<<52, to...))
				drain(b, subs[:present])
			}
			b.ReportMetric(page*float64(b.N)/b.Elapsed().Seconds(), "recipients/s")
		})
	}
	b.Run("floor=publish+receive", func(b *testing.B) { floor(b, rdb, 1, page) })
	b.Run("floor=smismember", func(b *testing.B) {
		members := make([]any, page)
		for i := range members {
			members[i] = users[i]
		}
		require.NoError(b, rdb.SAdd(b.Context(), "set", members...).Err())
		for b.Loop() {
			require.NoError(b, rdb.SMIsMember(b.Context(), "set", members...).Err())
		}
		b.ReportMetric(page*float64(b.N)/b.Elapsed().Seconds(), "recipients/s")
	})
}

// Measures an event for 5,000 subscribers of one process, from Publish to the last of
// them. The process holds 5,000 or 50,000 subscribers.
func BenchmarkDeliver(b *testing.B) {
	const audience = 5000
	rdb := serverClient(b, storagetest.StartRedis(b))
	p := live.NewPublisher(rdb, false)
	for _, held := range []int{audience, 10 * audience} {
		b.Run(fmt.Sprintf("subscribers=%d", held), func(b *testing.B) {
			h, stop := run(b, rdb, live.HubConfig{})
			defer stop()
			subs := subscribeAll(b, h, held)[:audience]
			users := ids(audience, 1)
			for b.Loop() {
				require.Equal(b, audience, publish(b, p, 1<<52, users...))
				drain(b, subs)
			}
			b.ReportMetric(audience*float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
	b.Run("floor=publish+receive", func(b *testing.B) { floor(b, rdb, 2, audience/2) })
}

func BenchmarkSubscribeClose(b *testing.B) {
	h, _ := run(b, serverClient(b, storagetest.StartRedis(b)), live.HubConfig{})
	b.RunParallel(func(pb *testing.PB) {
		for user := int64(1); pb.Next(); user++ {
			subscribe(b, h, user).Close()
		}
	})
}

func ids(n int, from int64) []int64 {
	users := make([]int64, n)
	for i := range users {
		users[i] = from + int64(i)
	}
	return users
}

func drain(b *testing.B, subs []reader) {
	for _, s := range subs {
		if _, ok := s.take(b); !ok {
			require.FailNow(b, "subscription ended", "%v", s.Err())
		}
	}
}

// floor sends and receives messages of one byte per recipient: the baseline.
func floor(b *testing.B, rdb redisclient.Client, messages, size int) {
	sub := rdb.(*redis.Client).Subscribe(b.Context(), "floor")
	defer sub.Close()
	_, err := sub.Receive(b.Context())
	require.NoError(b, err)
	payload := make([]byte, size)
	for b.Loop() {
		pipe := rdb.Pipeline()
		for range messages {
			pipe.Publish(b.Context(), "floor", payload)
		}
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
		for range messages {
			_, err := sub.Receive(b.Context())
			require.NoError(b, err)
		}
	}
	b.ReportMetric(float64(messages*size)*float64(b.N)/b.Elapsed().Seconds(), "recipients/s")
}
