// Package e2e tests the tideline binary as its users run it: processes with flags or
// environment variables, and GraphQL over HTTP and WebSocket. The tests use the command line and
// the API. They import the product's packages only for databases and their contents, the Go
// client, a trace collector and prepared events.
//
// The binary is built once, with the race detector if the tests have it. A data race in a
// process fails the test that started the process. Every process ends with its test. No test
// here asserts how long something takes; waits are bounded, most by patience.
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
	// patience is how long a test waits for a condition. On a busy machine, it is still longer
	// than the time after which a worker takes over a dead worker's job.
	patience = 90 * time.Second
	// poll is the interval of the checks.
	poll = 20 * time.Millisecond
)

// binary is the path of the program under test.
var binary string

func TestMain(m *testing.M) {
	// These tests mostly wait, so five run at once, unless -parallel says otherwise.
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
	// If a test fails, the binary is kept for debugging.
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
