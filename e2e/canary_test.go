package e2e

import (
	"regexp"
	"testing"

	"tideline/storage/storagetest"
)

// A process with embedded stores measures how long a canary takes to reach a subscriber.
func TestCanary(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	p := start(t, []string{"TIDELINE_DATA_DIR=" + t.TempDir()}, "--addr=127.0.0.1:0")
	took := regexp.MustCompile(`\ntideline_canary_seconds\{to="subscriber"\} (0\.0*[1-9]|[1-9])`)
	p.await("a canary arrives", func() bool {
		_, metrics := p.get("/metrics")
		return took.MatchString(metrics)
	})
}
