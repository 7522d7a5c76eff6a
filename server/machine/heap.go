package machine

import (
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
)

// leastGarbage is how many bytes of garbage come together before the collector runs. Of
// a process with few connections some ten megabytes are live: by its default the
// collector would run after every ten of garbage, which took a fifth of the processor
// time of a page.
const leastGarbage = 56 << 20

// defaultGOGC is the garbage that Go allows, in percent of what is live.
const defaultGOGC = 100

// CollectLess keeps the garbage at leastGarbage or at Go's default, whichever is more,
// until restore is called. A process with much live data has no more garbage than by
// the default. An operator who sets GOGC decides otherwise.
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
		// The next collection finds that nothing refers to this one.
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

// garbagePercent is the GOGC of a process in which the collector scans so many bytes.
func garbagePercent(scanned uint64) int {
	return int(max(leastGarbage*100/max(scanned, 1<<20), defaultGOGC))
}

// scanned is the memory that GOGC is a percentage of: what was live at the last
// collection, the stacks, and the global variables.
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
