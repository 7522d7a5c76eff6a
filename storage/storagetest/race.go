//go:build race

package storagetest

// Race reports whether the tests run with the race detector. A program that they build and
// start should have it then, too.
const Race = true
