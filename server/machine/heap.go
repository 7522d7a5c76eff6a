package machine

import (
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
)

// leastGarbage is the least garbage, in bytes, before the collector runs. A process with few connections has
// about ten megabytes of live data. With the default GOGC the collector would run after every ten megabytes
// of garbage, which took a fifth of the processor time of a page.
const leastGarbage = 56 << 20

// defaultGOGC is Go's default GOGC: garbage in percent of live data.
const defaultGOGC = 100

// CollectLess sets GOGC so that the collector runs after leastGarbage or Go's default, whichever is more,
// until restore is called. A process with much live data has no more garbage than with the default. It does
// nothing if the environment sets GOGC.
func CollectLess() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	var mu sync.Mutex
	over := false
	var afterCollection func(int)
	afterCollection = func(percent int) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if next := garbagePercent(scanned()); next != percent {
			debug.SetGCPercent(next)
			percent = next
		}
		// The cleanup runs after the next collection, since nothing refers to the object.
		runtime.AddCleanup(new([64]byte), afterCollection, percent)
	}
	afterCollection(defaultGOGC)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		debug.SetGCPercent(defaultGOGC)
	}
}

// garbagePercent returns the GOGC for a process in which the collector scans that many bytes.
func garbagePercent(scanned uint64) int {
	return int(max(leastGarbage*100/max(scanned, 1<<20), defaultGOGC))
}

// scanned returns the memory that GOGC is a percentage of: the live heap after the last collection, the
// stacks and the global variables.
func scanned() (bytes uint64) {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	runtimemetrics.Read(samples)
	for _, s := range samples {
		bytes += s.Value.Uint64()
	}
	return bytes
}
