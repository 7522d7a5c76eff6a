package server

import (
	"os"
	"runtime"
)

// heapReserve is how much larger the garbage collector takes the heap to be. Of a process
// with few connections some ten megabytes are live: the collector would run after every
// ten of garbage, which took a fifth of the processor time of a page.
const heapReserve = 48 << 20

// reserveHeap keeps the reserve until release is called. No page of it is ever touched, so
// it takes addresses and no memory; the process has at most as much more garbage. An
// operator who sets GOGC decides otherwise.
func reserveHeap() (release func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	reserve := make([]byte, heapReserve)
	return func() { runtime.KeepAlive(reserve) }
}
