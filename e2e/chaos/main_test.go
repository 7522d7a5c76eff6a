// Package chaos tests that Tideline keeps its promises under faults. It runs PostgreSQL with
// a standby, a Redis Cluster of three masters and three replicas, and Tideline's servers and
// workers as processes. Users post, follow, block, mute, hide and delete. Clients follow
// their timelines and resume. Meanwhile the test injects faults into the stores and, at the
// same time, into Tideline's processes. A seed selects the faults.
//
// At the end, every accepted post must be in exactly the timelines and profiles that it
// belongs to according to SQL. Every client must hold the posts of its timeline. No user may
// have been shown a post that the user could not see at that time. No job may be left. The
// test prints each violation by post, with the faults around that time.
//
// "make chaos" runs for ten minutes, with faults of up to 150 seconds. The test alone takes a
// minute and uses short faults. The same seed selects the same faults, but scheduling
// differs, so reproducing a loss may take several runs.
package chaos

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
	length = flag.Duration("for", 50*time.Second, "how long faults happen; with 3m or more some last for 150 s")
	seed   = flag.Uint64("seed", 2031, "what the faults are drawn from; 0: another one each time")
	only   = flag.String("only", "", "kinds of faults, separated by commas, by a part of their names; default: all")
	people = flag.Int("people", 12, "users, with two clients each")
	binary = flag.String("binary", "", "a tideline to take in place of one that is built here, such as an older one")
)

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-chaos")
	if err == nil && *binary == "" {
		*binary, err = worldtest.Build(dir, storagetest.Race)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
