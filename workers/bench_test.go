package workers_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/feed"
	"tideline/live"
	"tideline/queue"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

var benchFollowers = flag.Int("followers", 100_000, "audience of BenchmarkFanOut")

// BenchmarkFanOut measures a post's way from the follower table in PostgreSQL
// to the last inbox in Redis, at several shares of active followers. The floor
// is raw pipelined ZADD into the same inboxes, in the same run.
func BenchmarkFanOut(b *testing.B) {
	for _, percent := range []int{0, 20, 100} {
		b.Run(fmt.Sprintf("followers=%d/active=%d%%", *benchFollowers, percent), func(b *testing.B) {
			benchmarkFanOut(b, *benchFollowers, percent)
		})
	}
}

func benchmarkFanOut(b *testing.B, followers, percent int) {
	ctx := b.Context()
	s := storagetest.Real(b)
	ids, err := feed.OpenIDs(ctx, s.DB)
	require.NoError(b, err)
	tl, err := timeline.New(s.Redis, timeline.Config{})
	require.NoError(b, err)
	fanouts := make(chan workers.Fanout, 1)
	q, err := queue.New(s.DB, s.Redis, queue.Config{})
	require.NoError(b, err)
	publisher := live.NewPublisher(s.Redis, s.Sharded)
	f, err := feed.New(ctx, feed.Config{
		DB: s.DB, Dialect: s.Dialect, Timelines: tl, Queue: q, Publisher: publisher, IDs: ids, PullAbove: feed.NeverPull,
	})
	require.NoError(b, err)
	w, err := workers.New(workers.Config{
		DB: s.DB, Feed: f, Timelines: tl, Queue: q, Publisher: publisher, LagLimit: time.Hour,
		Observe: func(f workers.Fanout) { fanouts <- f },
	})
	require.NoError(b, err)
	for _, statement := range []string{
		`INSERT INTO users (id, handle, password_hash, diffusion_since, created_at) SELECT g, 'u' || g, '-', 0, now() FROM generate_series(1, $1 + 1) g`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT g + 1, 1, now() FROM generate_series(1, $1) g ORDER BY random()`,
		`UPDATE users SET follower_count = $1 WHERE id = 1`,
	} {
		_, err := s.SQL.ExecContext(ctx, statement, followers)
		require.NoError(b, err)
	}
	_, err = s.SQL.ExecContext(ctx, `VACUUM ANALYZE follows`)
	require.NoError(b, err)
	active := make([]int64, followers*percent/100)
	for i := range active {
		active[i] = int64(i + 2)
	}
	var touching errgroup.Group
	for chunk := range slices.Chunk(active, 1+len(active)/64) {
		touching.Go(func() error {
			for _, user := range chunk {
				if err := tl.Touch(ctx, user); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, touching.Wait())
	go func() { _ = w.Run(ctx) }()

	b.ResetTimer()
	var ours, floor time.Duration
	for range b.N {
		start := time.Now()
		p, err := f.CreatePost(ctx, feed.Viewer{ID: 1}, feed.Draft{Text: "hello"})
		require.NoError(b, err)
		require.Equal(b, len(active), (<-fanouts).Pushed)
		ours += time.Since(start)

		b.StopTimer()
		start = time.Now()
		for at := 0; at < len(active); at += 1000 {
			_, err := s.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, user := range active[at:min(at+1000, len(active))] {
					pipe.ZAdd(ctx, timeline.Inbox(user).String()+":z", redis.Z{Score: float64(-p.ID - 1), Member: p.ID + 1})
				}
				return nil
			})
			require.NoError(b, err)
		}
		floor += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(followers)*float64(b.N)/ours.Seconds(), "followers/s")
	b.ReportMetric(float64(len(active))*float64(b.N)/ours.Seconds(), "pushed/s")
	if percent > 0 {
		b.ReportMetric(float64(len(active))*float64(b.N)/floor.Seconds(), "floor-pushed/s")
		b.ReportMetric(floor.Seconds()/ours.Seconds(), "of-floor")
	}
}
