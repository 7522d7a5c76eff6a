// Package machine tells which resources the machine grants this process: open files, disk space, garbage in
// memory. It says if a system does not tell.
package machine
