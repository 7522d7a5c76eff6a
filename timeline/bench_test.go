package timeline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// BenchmarkDeliver measures one page of a fan-out to full inboxes of active users. It compares it
// with its floor, the bare inserts, and with the same inserts with ids that are not negated, which
// go to the far end. All take turns, so that other load on the machine affects all of them.
func BenchmarkDeliver(b *testing.B) {
	const followers = 3000
	for name, entries := range encodings {
		b.Run(name, func(b *testing.B) {
			ctx, rdb := b.Context(), benchRedis(b, entries)
			s, _ := newStore(b, rdb)
			var users []int64
			var keys, ascending []string
			for user := int64(1); user <= followers; user++ {
				users = append(users, user)
				keys = append(keys, inboxSet(user))
				require.NoError(b, s.Visits.Touch(ctx, user))
				build(b, s, timeline.Inbox(user), down(1000+inboxCap, 1001), 0)
				ascending = append(ascending, "ascending:"+itoa(user))
			}
			members := make([]redis.Z, inboxCap)
			for i, id := range down(1000+inboxCap, 1001) {
				members[i] = redis.Z{Score: float64(id), Member: itoa(id)}
			}
			insert := func(keys []string, members ...redis.Z) time.Duration {
				start := time.Now()
				for chunk := range slices.Chunk(keys, 1000) {
					_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
						for _, key := range chunk {
							p.ZAdd(ctx, key, members...)
						}
						return nil
					})
					require.NoError(b, err)
				}
				return time.Since(start)
			}
			insert(ascending, members...)
			var deliver, look, floor, far time.Duration
			post := int64(10000)
			for b.Loop() {
				post++
				start := time.Now()
				pushed, err := s.Inboxes.Deliver(ctx, post, users)
				deliver += time.Since(start)
				require.NoError(b, err)
				require.Len(b, pushed, followers)

				start = time.Now()
				_, err = s.Active.Check(ctx, users)
				look += time.Since(start)
				require.NoError(b, err)

				post++
				floor += insert(keys, redis.Z{Score: float64(-post), Member: itoa(post)})
				far += insert(ascending, redis.Z{Score: float64(post), Member: itoa(post)})
			}
			n := float64(followers * b.N)
			b.ReportMetric(n/deliver.Seconds(), "delivered/s")
			b.ReportMetric(n/look.Seconds(), "looked-up/s")
			b.ReportMetric(n/floor.Seconds(), "floor/s")
			b.ReportMetric(n/far.Seconds(), "ascending/s")
			b.ReportMetric(floor.Seconds()/deliver.Seconds(), "of-floor")
		})
	}
}

// BenchmarkPage compares a page of 20 from the middle of a full inbox with the bare range command,
// in turns.
func BenchmarkPage(b *testing.B) {
	for name, entries := range encodings {
		b.Run(name, func(b *testing.B) {
			ctx, rdb := b.Context(), benchRedis(b, entries)
			s, _ := newStore(b, rdb)
			build(b, s, timeline.Inbox(1), down(1000+inboxCap, 1001), 0)
			var paged, floor time.Duration
			for b.Loop() {
				start := time.Now()
				ids, _, err := s.Feeds.Page(ctx, timeline.Inbox(1), timeline.Range{Before: 1200, Limit: 20})
				paged += time.Since(start)
				require.NoError(b, err)
				require.Len(b, ids, 20)

				start = time.Now()
				bare, err := rdb.ZRangeByScore(ctx, inboxSet(1),
					&redis.ZRangeBy{Min: "(-1200", Max: "(0", Count: 20}).Result()
				floor += time.Since(start)
				require.NoError(b, err)
				require.Len(b, bare, 20)
			}
			b.ReportMetric(float64(paged.Microseconds())/float64(b.N), "page-µs")
			b.ReportMetric(float64(floor.Microseconds())/float64(b.N), "floor-µs")
		})
	}
}

// encodings are the two ways in which Redis stores a full inbox, depending on the setting
// zset-max-listpack-entries.
var encodings = map[string]string{"listpack": "1200", "skiplist": "128"}

func benchRedis(b *testing.B, listpackEntries string) redisclient.Client {
	b.Helper()
	opts, err := redis.ParseURL(storagetest.StartRedis(b).URL())
	require.NoError(b, err)
	rdb := redis.NewClient(opts)
	b.Cleanup(func() { require.NoError(b, rdb.Close()) })
	require.NoError(b, rdb.ConfigSet(b.Context(), "zset-max-listpack-entries", listpackEntries).Err())
	return rdb
}

// BenchmarkMemory reports how much memory an entry of a full inbox takes according to Redis,
// including its share of keys and coverage.
func BenchmarkMemory(b *testing.B) {
	for name, entries := range encodings {
		b.Run(name, func(b *testing.B) {
			ctx, rdb := b.Context(), benchRedis(b, entries)
			s, _ := newStore(b, rdb)
			const newest = 1 << 50
			var bytes, held int64
			for user := int64(1); b.Loop(); user++ {
				ids := make([]int64, inboxCap)
				for i := range ids {
					ids[i] = newest - int64(i)<<30 // some minutes apart
				}
				build(b, s, timeline.Inbox(user), ids, 0)
				for _, suffix := range []string{":z", ":m"} {
					n, err := rdb.MemoryUsage(ctx, timeline.Inbox(user).String()+suffix, 0).Result()
					require.NoError(b, err)
					bytes += n
				}
				held += inboxCap
			}
			b.ReportMetric(float64(bytes)/float64(held), "bytes/entry")
		})
	}
}
