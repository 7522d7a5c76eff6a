//go:build !race

package storagetest

// Race reports whether the tests run with the race detector. Programs that they build and start
// should then have it too.
const Race = false
