// Package alarms tests the alerts in deploy/prometheus/alerts.yml. A Prometheus with these
// rules watches tideline processes. Each test causes a real fault. The alert must fire, and
// it must end after the cure that the alert's section of the runbook describes. All times in
// the rules are divided by thirty.
//
// "make alarms" gets a Prometheus and runs the tests. Without the flag -need they are
// skipped. The tests assert no times: each test queries Prometheus until the alert fires, and
// until it ends. But on a machine that is thirty times slower than usual, shortened alerts
// correctly do not end. So "make test-all", which runs packages in parallel, skips these tests.
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
	// These tests mostly wait, so more of them run at once than there are processors.
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

// tools is a temporary directory for the binary.
var tools string

func build() (string, error) {
	var err error
	if tools, err = os.MkdirTemp("", "tideline-alarms"); err != nil {
		return "", err
	}
	return worldtest.Build(tools, storagetest.Race)
}
