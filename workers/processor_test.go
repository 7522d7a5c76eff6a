package workers_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// processorTime returns the processor time of this process and of its PostgreSQL and Redis child
// processes, by program name. It is empty without Linux's /proc.
func processorTime() map[string]time.Duration {
	spent := map[string]time.Duration{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	parents, names, own := map[int]int{}, map[int]string{}, map[int]time.Duration{}
	for _, path := range all {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		text, err := os.ReadFile(path)
		if err != nil { // it has ended meanwhile
			continue
		}
		name, rest := text[bytes.IndexByte(text, '(')+1:bytes.LastIndexByte(text, ')')], text[bytes.LastIndexByte(text, ')')+1:]
		fields := bytes.Fields(rest)
		number := func(i int) int { n, _ := strconv.Atoi(string(fields[i])); return n }
		const tick = 10 * time.Millisecond
		parents[pid], names[pid] = number(1), string(name)
		own[pid] = time.Duration(number(11)+number(12)+number(13)+number(14)) * tick // also of children that have ended
	}
	for pid := range own {
		switch {
		case pid == os.Getpid():
			spent["own"] += own[pid]
		case parents[pid] == os.Getpid() || parents[parents[pid]] == os.Getpid():
			spent[names[pid]] += own[pid]
		}
	}
	return spent
}

// reportProcessorTime reports the processor time since the given state, divided by n posts or
// deliveries.
func reportProcessorTime(b *testing.B, since map[string]time.Duration, n int) {
	var total time.Duration
	for name, spent := range processorTime() {
		spent -= since[name]
		total += spent
		b.ReportMetric(float64(spent.Microseconds())/float64(n), fmt.Sprintf("%s-µs", name))
	}
	b.ReportMetric(float64(total.Microseconds())/float64(n), "all-µs")
}
