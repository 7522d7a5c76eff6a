// Package upgrade tests a rolling upgrade from the previous release. The previous release runs
// as two servers and two workers on PostgreSQL and Redis, under load, with three kinds of
// clients. The test then migrates and replaces the processes in steps:
//
//  1. The schema is expanded.
//  2. The workers and then the servers are replaced, one at a time.
//  3. One server and one worker are rolled back, and replaced again.
//  4. The schema is contracted.
//
// No write may fail permanently, and no client may miss a post or get one twice.
//
// The previous release is the newest tag before this commit, or else the commit in the file
// previous. It is built from git once and kept in the directory .test.
//
// "make upgrade" runs the test for five minutes, or another time.
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

// patience bounds the wait until every client has the posts of a step.
const patience = 90 * time.Second

// binary is the program of this commit and older the program of the previous release. noOlder
// is the error if the previous release could not be built.
var (
	binary, older string
	noOlder       error
)

// TestMain builds the binaries, so that the build does not count towards the tests' timeout.
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
