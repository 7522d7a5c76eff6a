package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tideline/feed/ids"
	"tideline/feed/stream"
	"tideline/graph"
	"tideline/internal/trace"
	"tideline/live"
	"tideline/queue"
)

// alert is a rule of deploy/prometheus/alerts.yml.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func readAlerts(t *testing.T) (all []alert) {
	text, err := os.ReadFile("../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// exported returns the names of all metrics that a process may export.
func exported() (names []string) {
	m := newMetrics()
	m.CountSockets(func() int { return 0 })
	m.CountHub(func() live.Stats { return live.Stats{} })
	m.CountIDs(func() ids.Stats { return ids.Stats{} })
	m.CountWorkers(new(queue.Queue))
	m.Certificate(time.Now())
	m.MeasureDisk(".")
	m.CountStreams(func() stream.Stats { return stream.Stats{Invalidated: map[stream.Cause]uint64{stream.Changed: 0}} })
	m.CountSpans(func() trace.Stats { return trace.Stats{} })
	described := make(chan *prometheus.Desc, 1000)
	m.Registry().Describe(described)
	close(described)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for desc := range described {
		names = append(names, name.FindStringSubmatch(desc.String())[1])
	}
	return names
}

// Each alert has a section in the runbook, and each section an alert. Each alert is tested,
// and uses metrics that exist.
func TestAlertsHaveTheirPagesAndTheirMetrics(t *testing.T) {
	runbook, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	tried, err := os.ReadFile("../deploy/prometheus/alerts_test.yml")
	require.NoError(t, err)
	var named []string
	metrics := append(exported(), "up", "process_start_time_seconds", "process_open_fds", "process_max_fds")
	metric := regexp.MustCompile(`\b((?:tideline|process|go)_\w+|up)\b`)
	ours := regexp.MustCompile(`tideline_\w+[a-z]`)
	for _, a := range readAlerts(t) {
		named = append(named, a.Alert)
		assert.Contains(t, []string{"page", "ticket"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.Equal(t, "docs/runbook.md#"+strings.ToLower(a.Alert), a.Annotations["runbook"])
		assert.Contains(t, string(tried), "- name: "+a.Alert+"\n", "it is not tried")
		for _, name := range metric.FindAllString(a.Expr, -1) {
			assert.Contains(t, metrics, strings.TrimSuffix(name, "_bucket"), a.Alert)
		}
	}
	var sections []string
	for section := range strings.SplitSeq(string(runbook), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(title, "# ") {
			continue
		}
		sections = append(sections, title)
		for _, part := range []string{"**It means** ", "**Look at** ", "**Do:** "} {
			assert.Contains(t, text, "\n"+part, title)
		}
	}
	assert.Equal(t, named, sections, "the alerts, and the sections of the runbook, in the same order")
	for _, name := range ours.FindAllString(string(runbook), -1) {
		assert.True(t, slices.Contains(metrics, name), "the runbook names %s, which no process exports", name)
	}
	assert.Equal(t, "TIMEOUT", graph.CodeTimeout, "TidelineErrors counts it")
}

// The glossary names only metrics that exist.
func TestGlossaryNamesMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../docs/glossary.md")
	require.NoError(t, err)
	metrics := exported()
	for _, name := range regexp.MustCompile("`(tideline_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		assert.Contains(t, metrics, name[1])
	}
}
