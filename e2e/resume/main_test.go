// Package resume shows that a live timeline never loses a change silently: clients
// disconnect and resume by their cursors, while servers and workers are killed and
// Redis is restarted, wiped and cut off. In the end each client has exactly what
// the timeline says, edits included, and none was ever shown a post for nobody else.
//
// It drives the tideline binary, built with the race detector, the npm package
// graphql-ws ("npm ci" in the directory above), the kit of clients/typescript
// ("npm ci" there), and the Go client, for a little over a minute; "make resume" for ten.
package resume

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

const patience = 90 * time.Second

var (
	// traffic is how long authors post at least.
	traffic = flag.Duration("for", time.Minute, "how long faults happen")
	binary  string
)

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-resume")
	if err == nil {
		binary, err = worldtest.Build(dir, storagetest.Race)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
