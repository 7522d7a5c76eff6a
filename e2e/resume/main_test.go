// Package resume tests that a live timeline never loses a change silently. Clients
// disconnect and resume from their positions while servers and workers are killed and Redis
// is restarted, wiped and cut off. At the end, each client must hold exactly the posts of its
// timeline, edits included. No client may ever have been shown another user's private post.
//
// The test runs the tideline binary, with clients that use the npm package graphql-ws
// ("npm ci" in the directory above), the TypeScript kit ("npm ci" in clients/typescript) and
// the Go client. It takes a little over a minute; "make resume" runs for ten.
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
	// traffic is the minimum time for which authors post.
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
