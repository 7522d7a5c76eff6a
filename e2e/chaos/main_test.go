// Package chaos shows that Tideline keeps its promises while machines misbehave: on
// real PostgreSQL with a standby, a real Redis Cluster of three masters and three
// replicas, and servers and workers as processes. Users post, follow, block, mute,
// hide and delete; clients follow their timelines and resume; meanwhile faults that
// are drawn from a seed happen to the stores and, beside them, to the processes.
//
// In the end every accepted post must be in every timeline and profile that it
// belongs to, by what SQL says, and nowhere else; every client must hold what its
// page has; nobody was shown what they could not see at that moment; no job is left.
// What is wrong is printed post by post, with the faults at that time.
//
// "make chaos" runs it for ten minutes, with faults of 150 seconds; the test alone
// takes a minute and has short ones. The same seed draws the same faults. It cannot
// repeat what the scheduler does, so a loss may need several runs.
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
