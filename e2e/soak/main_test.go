// Package soak tests that Tideline releases the resources that a load uses: memory,
// goroutines, open files, Redis keys and memory, SQL rows, and the age of the oldest job.
// Users post, read, follow, like, and log in and out, on one server and one worker. Clients
// connect and resume. Each user ends with the same number of posts and relations, so any
// growth is a leak.
//
// "make soak" runs for ten minutes, or another time. The test alone takes half a minute. It
// then ignores the memory of the processes, because the garbage collector needs minutes to
// return it.
package soak

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

const quick = 20 * time.Second

var (
	length = flag.Duration("for", quick, "how long the load lasts, after a while to warm up")
	people = flag.Int("people", 12, "users, with a client each")
)

var binary string

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-soak")
	if err == nil {
		binary, err = worldtest.Build(dir, storagetest.Race)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
