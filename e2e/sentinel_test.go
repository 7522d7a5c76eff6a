package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// The master of a Redis Sentinel setup is killed. Until the Sentinels have promoted another
// master, posts are accepted and pages are read from SQL. Afterwards live delivery continues,
// no event is lost, and the process logs that Redis is well again.
func TestSentinelFailover(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	sentinel := storagetest.StartSentinel(t)
	config := storage.Config{DatabaseURL: storagetest.PostgresURL(t), RedisURL: sentinel.URL()}
	start(t, settings(config), "worker", "--worker-addr=127.0.0.1:0")
	p := start(t, settings(config), "server", "--addr=127.0.0.1:0")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	ben.follow(t, p, ann)
	f := ben.watch(t, p)
	ann.post(t, p, "one")
	f.added("one")
	require.Equal(t, []string{"one"}, ben.timeline(t, p))

	sentinel.KillMaster()
	killed := time.Now()
	ann.post(t, p, "two")
	t.Logf("posted after %v", time.Since(killed))
	require.Contains(t, ben.timeline(t, p), "one")
	t.Logf("read after %v", time.Since(killed))
	p.await("it says that Redis is back", func() bool {
		status, _ := p.get("/readyz")
		return status == http.StatusOK
	})
	t.Logf("ready after %v", time.Since(killed))
	told := func(text string) {
		f.until(func(ev told) bool {
			return ev.Typename == "TimelineInvalidated" || ev.Typename == "TimelinePostAdded" && ev.Edge.Node.Text == text
		})
	}
	told("two")
	t.Logf("told after %v", time.Since(killed))
	ann.post(t, p, "three")
	told("three")
	require.Equal(t, []string{"three", "two", "one"}, ben.timeline(t, p))
	// The process checks Redis at intervals and on requests of /readyz, so a short failover may
	// go unnoticed.
	if out := p.out.String(); strings.Contains(out, "not ready") {
		require.Contains(t, out, "well again")
	}
}
