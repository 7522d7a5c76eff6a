// Command summary reads the events of "go test -json", prints a line per package
// as it ends and the output of what failed, and at the end how many tests ran
// and on which databases. The last line is "N passed, N failed, N skipped".
//
// A test with subtests is not counted beside them. A package that fails without
// a failed test, such as one that does not build, counts as one.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// result is what is known of a test, or of a package when it has no name.
type result struct {
	action string
	output []string
	parent bool
	failed bool // a subtest, or in a package a test, has failed
}

// engines names the databases behind a part of a test's name.
var engines = []struct{ part, name string }{
	{"sqlite+embedded", "SQLite, in-process Redis"},
	{"postgres+redis", "PostgreSQL, redis-server"},
	{"sqlite", "SQLite"},
	{"postgres", "PostgreSQL"},
	{"embedded", "in-process Redis"},
	{"redis", "redis-server"},
	{"cluster", "Redis Cluster of three masters"},
}

type summary struct {
	results map[[2]string]*result
	order   [][2]string
}

func (s *summary) of(pkg, test string) *result {
	key := [2]string{pkg, test}
	r := s.results[key]
	if r == nil {
		r = &result{}
		s.results[key] = r
		s.order = append(s.order, key)
	}
	return r
}

// above returns the tests that test is a part of, the nearest first. A slash may
// also belong to a name: parents are those that have been seen, for they start
// before their subtests.
func (s *summary) above(pkg, test string) []*result {
	var parents []*result
	for {
		i := strings.LastIndex(test, "/")
		if i < 0 {
			return parents
		}
		test = test[:i]
		if r := s.results[[2]string{pkg, test}]; r != nil {
			parents = append(parents, r)
		}
	}
}

func (s *summary) add(e event) {
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ") // the output of a build
	}
	r := s.of(e.Package, e.Test)
	switch e.Action {
	case "output", "build-output":
		r.output = append(r.output, e.Output)
	case "run":
		if parents := s.above(e.Package, e.Test); len(parents) > 0 {
			parents[0].parent = true
		}
	case "pass", "fail", "skip":
		r.action = e.Action
		if e.Action == "fail" && e.Test != "" {
			s.of(e.Package, "").failed = true
			for _, parent := range s.above(e.Package, e.Test) {
				parent.failed = true
			}
		}
		if e.Test == "" && e.Action != "skip" {
			fmt.Printf("%s\t%s\t%.1f s\n", e.Action, e.Package, e.Elapsed)
		}
	}
}

// counts says whether key stands for itself in the sum.
func (s *summary) counts(key [2]string) bool {
	r := s.results[key]
	if key[1] == "" || r.parent {
		return r.action == "fail" && !r.failed
	}
	return true
}

func (s *summary) print() (ok bool) {
	total := map[string]int{}
	perEngine := map[string]map[string]int{}
	for _, key := range s.order {
		r := s.results[key]
		if key[1] != "" && r.action == "" { // the package ended in the middle of it
			r.action = "fail"
		}
		if !s.counts(key) {
			continue
		}
		total[r.action]++
		switch r.action {
		case "fail":
			fmt.Printf("\nFAILED %s %s\n%s", key[0], key[1], strings.Join(r.output, ""))
		case "skip":
			fmt.Printf("\nskipped %s %s\n%s", key[0], key[1], strings.Join(r.output, ""))
		}
		parts := strings.Split(key[1], "/")
		for _, engine := range engines {
			if slices.Contains(parts, engine.part) {
				if perEngine[engine.name] == nil {
					perEngine[engine.name] = map[string]int{}
				}
				perEngine[engine.name][r.action]++
			}
		}
	}
	fmt.Println()
	for _, engine := range engines {
		if n := perEngine[engine.name]; n != nil {
			fmt.Printf("on %-32s %4d passed, %d failed, %d skipped\n", engine.name, n["pass"], n["fail"], n["skip"])
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total["pass"], total["fail"], total["skip"])
	return total["fail"] == 0 && total["pass"] > 0
}

func main() {
	s := &summary{results: map[[2]string]*result{}}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			break
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Printf("%s", line) // not an event: go itself says something
			continue
		}
		s.add(e)
	}
	if !s.print() {
		os.Exit(1)
	}
}
