// Package alarms has alerts fire by what they watch. A Prometheus watches processes of the
// real binary by deploy/prometheus/alerts.yml, with all times in it cut by thirty; each fault is caused
// for real, the alert must fire, and end after the cure that its section of the runbook names.
//
// "make alarms" gets a Prometheus and runs the tests; without the flag -need they are skipped. No time is asserted: each
// test asks Prometheus until the alert is there, and until it is gone. But an alert is about time: on a machine on which
// everything takes thirty times as long as usual, alerts that are due thirty times sooner rightly do not end. So
// "make test-all", which runs all packages beside each other, leaves them out.
package alarms

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

var (
	sooner = flag.Int("sooner", 30, "by what the times of the alerts are divided")
	need   = flag.Bool("need", false, "try the alerts; fail where there is no Prometheus")
)

var binary string

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	// These tests wait more than they compute: more of them run at once than there are processors.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("12")
	}
	if _, err := findPrometheus(); *need && err == nil {
		if binary, err = build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	storagetest.Main(m, func() error {
		if testing.Verbose() {
			fmt.Fprint(os.Stdout, table())
		}
		return os.RemoveAll(tools)
	})
}

// tools is a directory of this run.
var tools string

func build() (string, error) {
	var err error
	if tools, err = os.MkdirTemp("", "tideline-alarms"); err != nil {
		return "", err
	}
	return worldtest.Build(tools, storagetest.Race)
}
