//go:build !linux && !darwin

package server

// diskSpace is not known here.
func diskSpace(string) (size, free uint64, known bool) { return 0, 0, false }
