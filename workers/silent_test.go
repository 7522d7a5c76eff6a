package workers_test

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed"
	"tideline/queue"
	"tideline/storage/storagetest"
)

// PostgreSQL stops answering the workers in the middle of a job. The attempt ends, and so do all
// other waits. When PostgreSQL answers again, this job and the jobs that were enqueued meanwhile
// are done.
func TestASilentPostgresStopsNoWorkerForGood(t *testing.T) {
	t.Parallel()
	cfg := storagetest.Config(storagetest.Real(t))
	u, err := url.Parse(cfg.DatabaseURL)
	require.NoError(t, err)
	proxy := storagetest.StartProxy(t, "tcp", u.Host)
	u.Host = proxy.Addr
	direct := storagetest.Open(t, cfg)
	cfg.DatabaseURL, cfg.StatementTimeout = u.String()+"&connect_timeout=3", 3*time.Second
	a := newIdleAudience(t, storagetest.Open(t, cfg), 4, 2)
	begun, ended, silent := make(chan struct{}), make(chan error, 1), make(chan struct{})
	var tries atomic.Int64
	a.work(t, a.Stores.Redis, func(q *queue.Queue) {
		q.Handle("looks", func(ctx context.Context, _ *queue.Job) error {
			if tries.Add(1) > 1 {
				return nil
			}
			close(begun)
			<-silent
			_, err := a.Stores.DB.User.Query().Count(ctx)
			ended <- err
			return err
		})
	})
	tx, err := direct.DB.Tx(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Queue.Enqueue(t.Context(), tx, queue.Small, "looks", nil))
	require.NoError(t, tx.Commit())
	<-begun
	proxy.Silence(true)
	close(silent)
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the job waits for ever")
	}
	proxy.Silence(false)
	var post int64
	require.Eventually(t, func() bool {
		p, err := a.Feed.CreatePost(t.Context(), a.author, feed.Draft{Text: "hello"})
		if err == nil {
			post = p.ID
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		left, err := direct.DB.Job.Query().Exist(t.Context())
		return err == nil && !left
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, int64(2), tries.Load())
	a.requireReached(t, post)
}
