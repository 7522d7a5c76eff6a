package workers_test

import (
	"context"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage/storagetest"
	"tideline/workers"
)

var benchRate = flag.Int("rate", 0, "posts a second that are due in BenchmarkCreatePost; 0: as many as it can make")

// BenchmarkCreatePost measures posts to ten active followers by eight writers, each with an author
// of its own, in one process with workers on PostgreSQL and Redis. It reports posts per second, the
// duration of a call, and the number of fan-outs left when the last call has returned. A post
// counts when it is fanned out. With -rate the posts are due at that rate, and the duration of a
// call starts when it is due.
func BenchmarkCreatePost(b *testing.B) {
	const writers, followers = 8, 10
	s := storagetest.Real(b)
	s.DB = ent.NewClient(ent.Driver(s.Driver)) // without the count of statements that tests have
	var done atomic.Int64
	all := make(chan struct{}, 1)
	w := feedtest.New(b, s, feedtest.Options{Queue: queue.Config{Observe: func(r queue.Result) {
		assert.NoError(b, r.Err)
		if done.Add(1) == int64(b.N) {
			all <- struct{}{}
		}
	}}})
	authors, active := w.Users(writers), []session.Viewer(nil)
	for _, author := range authors {
		for range followers {
			reader := w.User("reader" + time.Now().Format("150405.000000000"))
			active = append(active, reader)
			require.NoError(b, s.DB.Follow.Create().SetFollowerID(reader.ID).SetFolloweeID(author.ID).Exec(b.Context()))
		}
		require.NoError(b, s.DB.User.UpdateOneID(author.ID).SetFollowerCount(followers).Exec(b.Context()))
	}
	w.Run(w.IDs.Run)
	w.Run(w.Home.Run)
	for _, reader := range slices.Concat(active, authors) {
		w.AwaitInbox(reader)
	}
	ws, err := workers.New(w.WorkersConfig())
	require.NoError(b, err)
	w.Run(ws.Run)

	calls := make([]time.Duration, b.N)
	var next atomic.Int64
	var writing sync.WaitGroup
	b.ResetTimer()
	start, spent := time.Now(), processorTime()
	for _, author := range authors {
		writing.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				begun := time.Now()
				if *benchRate > 0 {
					begun = start.Add(time.Duration(i) * time.Second / time.Duration(*benchRate))
					time.Sleep(time.Until(begun))
				}
				_, err := w.Feed.CreatePost(context.WithoutCancel(b.Context()), author, feed.Draft{Text: "hello"})
				if !assert.NoError(b, err) {
					return
				}
				calls[i] = time.Since(begun)
			}
		})
	}
	writing.Wait()
	written, left := time.Since(start), int64(b.N)-done.Load()
	<-all
	fannedOut := time.Since(start)
	b.StopTimer()
	reportProcessorTime(b, spent, b.N)
	slices.Sort(calls)
	b.ReportMetric(float64(b.N)/written.Seconds(), "posts/s")
	b.ReportMetric(float64(b.N)/fannedOut.Seconds(), "fanned-out/s")
	b.ReportMetric(float64(left), "backlog")
	b.ReportMetric(float64(calls[len(calls)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(calls[len(calls)*99/100].Microseconds())/1000, "p99-ms")
}
