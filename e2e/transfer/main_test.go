// Package transfer imports and exports the data of an existing app with the tideline binary,
// on PostgreSQL and next to a running server. It compares the result with a model: the export
// must contain the imported lines, and timelines must contain the expected posts.
//
// "make transfer" uses 100,000 users, 1,000,000 follows and 300,000 posts, and prints the
// rates. The test alone uses a five-hundredth of these.
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
		binary, err = worldtest.Build(dir, false) // without the race detector, which other tests use
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}
