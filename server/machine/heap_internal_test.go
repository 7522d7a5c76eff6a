package machine

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A small process has more garbage than with Go's default, a large one does not.
func TestGarbagePercent(t *testing.T) {
	require.Equal(t, 5600, garbagePercent(0))
	require.Equal(t, 560, garbagePercent(10<<20))
	require.Equal(t, 100, garbagePercent(56<<20))
	require.Equal(t, 100, garbagePercent(1<<40))
}

// The percentage follows the live heap after each collection, and is reset to Go's default in the end.
func TestCollectLess(t *testing.T) {
	current := func() int {
		percent := debug.SetGCPercent(defaultGOGC)
		debug.SetGCPercent(percent)
		return percent
	}
	t.Setenv("GOGC", "") // as if the operator had not set it
	restore := CollectLess()
	defer restore()
	small := current()
	require.Greater(t, small, defaultGOGC)
	live := make([]byte, 2*leastGarbage)
	require.Eventually(t, func() bool { runtime.GC(); return current() == defaultGOGC }, time.Minute, time.Millisecond)
	runtime.KeepAlive(live) // it may be collected from here on
	require.Eventually(t, func() bool { runtime.GC(); return current() > defaultGOGC }, time.Minute, time.Millisecond)
	restore()
	require.Equal(t, defaultGOGC, current())
}
