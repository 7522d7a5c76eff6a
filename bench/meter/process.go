package meter

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Process is the information of /proc about a process: Own is its processor time, and Gone the time of its children
// that have ended, both in steps of Tick.
type Process struct {
	Name      string
	Parent    int
	Own, Gone time.Duration
}

// ReadProcess reads /proc. It returns an error if the process has ended, or if this system has no /proc.
func ReadProcess(pid int) (p Process, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[to+1:])
	if from < 0 || to < from || len(fields) < 15 {
		return p, fmt.Errorf("process %d: /proc has another form here", pid)
	}
	var numbers [15]int64
	for i := 1; i < len(numbers); i++ {
		if numbers[i], err = strconv.ParseInt(string(fields[i]), 10, 64); err != nil {
			return p, err
		}
	}
	return Process{
		string(text[from+1 : to]), int(numbers[1]),
		time.Duration(numbers[11]+numbers[12]) * Tick, time.Duration(numbers[13]+numbers[14]) * Tick,
	}, nil
}

// WithChildren returns the processor time of a process and its children, including those that have ended. Errors: those
// of ReadProcess.
//
// Cost: one file read for each process of the machine.
func WithChildren(pid int) (total time.Duration, err error) {
	p, err := ReadProcess(pid)
	if err != nil {
		return 0, err
	}
	total = p.Own + p.Gone
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range all {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if c, err := ReadProcess(child); err == nil && c.Parent == pid { // otherwise it ended meanwhile
			total += c.Own
		}
	}
	return total, nil
}
