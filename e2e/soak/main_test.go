// Package soak shows that what a load takes comes back: memory, goroutines, open
// files, keys and memory of Redis, rows of SQL, and the lag of the queue. One server
// and one worker serve users who post, read, follow and like, log in and out, and
// clients that connect and resume. Each user keeps the same number of posts and
// relations, so that whatever has grown in the end was left behind.
//
// "make soak" runs it for as long as one likes. The test alone takes half a minute
// and judges all but the memory of processes, which the garbage collector gives back
// in its own time.
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
