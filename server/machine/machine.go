// Package machine tells how much the machine lets this process have: open files, room on disks, garbage in memory. What it cannot
// know on a system it says is not known.
package machine
