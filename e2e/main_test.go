// Package e2e drives the tideline binary as its users do: processes with flags or
// environment variables, GraphQL over HTTP, the npm clients over WebSocket. It
// knows the command line and the API. Of the product's packages it imports only
// those that start real databases and open them for a check.
//
// The binary is built once, with the race detector if the tests have it. A report of the
// detector fails the test whose process made it. Every process that a test starts ends with the
// test. No test here asserts how long something took: each wait has a minute.
//
// The npm clients are those of package-lock.json ("npm ci" in this directory).
// Without them, or without node, their tests are skipped and say so; with
// TIDELINE_TEST_REQUIRE_REAL=1 they fail instead.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tideline/storage/storagetest"
)

const (
	// patience is how long a test waits for an event that must happen: longer than
	// the time after which another worker takes over a dead worker's job, on a busy
	// machine.
	patience = 90 * time.Second
	// poll is the interval of the checks.
	poll = 20 * time.Millisecond
)

// binary is the path of the program under test.
var binary string

func TestMain(m *testing.M) {
	// These tests wait more than they compute: more of them run at once than there
	// are processors.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("5")
	}
	dir, err := os.MkdirTemp("", "tideline-e2e")
	if err == nil {
		binary = filepath.Join(dir, "tideline")
		err = storagetest.Build(binary, "tideline", storagetest.Race)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		os.Exit(1)
	}
	// When a test fails the binary stays for the investigation.
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
