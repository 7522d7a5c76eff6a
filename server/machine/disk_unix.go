//go:build linux || darwin

package machine

import "syscall"

// DiskSpace returns the size of the file system that contains dir, and the bytes free for this process.
func DiskSpace(dir string) (size, free uint64, known bool) {
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil {
		return 0, 0, false
	}
	block := uint64(disk.Bsize)
	return disk.Blocks * block, disk.Bavail * block, true
}
