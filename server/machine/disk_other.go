//go:build !linux && !darwin

package machine

// DiskSpace reports that the space is not known on this system.
func DiskSpace(string) (size, free uint64, known bool) { return 0, 0, false }
