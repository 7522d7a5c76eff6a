//go:build !unix

package machine

// OpenFiles is not known on this system.
func OpenFiles() (most uint64, known bool) { return 0, false }
