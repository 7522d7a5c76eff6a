// Package upgrade shows that Tideline is upgraded while it serves. The previous release
// runs as two servers and two workers on PostgreSQL and redis-server, under load, with
// clients of three kinds. Then its tables are expanded, and its processes are replaced one
// after the other, one of each put back and forward again, until the tables contract. No
// write fails for good, and no client misses a post or gets one twice.
//
// The previous release is the newest tag before this commit, or else the commit in the file
// previous. It is built from git, once: the folder .test keeps it.
//
// "make upgrade" takes as long as one likes.
package upgrade

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

var (
	length = flag.Duration("for", 14*time.Second, "how long the load lasts, the same for each step")
)

// patience is how long a step may take until every client has what was written in it.
const patience = 90 * time.Second

// The programs of this commit and of the previous release, and why there is none of that.
var (
	binary, older string
	noOlder       error
)

// TestMain builds before the time of the tests begins.
func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-upgrade")
	if err == nil {
		binary, err = worldtest.Build(dir, storagetest.Race)
	}
	if err == nil {
		older, noOlder = previous()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
