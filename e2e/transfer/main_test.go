// Package transfer imports and exports the rows of a grown app by the binary, on
// PostgreSQL and beside a running server, and holds the result against a model: the
// exported file says what the imported ones said, and timelines have what they must.
//
// "make transfer" does it with 100,000 users, 1,000,000 follows and 300,000 posts, and
// says how fast. The test alone takes a five-hundredth of these.
package transfer

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

var size = flag.Float64("size", 0.002, "what part of a hundred thousand users, a million follows and 300,000 posts")

var binary string

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-transfer")
	if err == nil {
		binary, err = worldtest.Build(dir, false) // the race detector is for others
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
