package alarms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

const (
	// patience is how long a test waits for a condition.
	patience = 5 * time.Minute
	poll     = 100 * time.Millisecond
)

// prometheus is a running Prometheus that watches the processes of one test.
type prometheus struct{ url string }

// findPrometheus returns the path of the Prometheus that .ci/tool has unpacked, or else of the
// one in PATH.
func findPrometheus() (string, error) {
	unpacked, err := filepath.Abs(filepath.Join("..", "..", ".test", "tools", "root", "usr", "bin", "prometheus"))
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(unpacked); err == nil && info.Mode().IsRegular() {
		return unpacked, nil
	}
	return exec.LookPath("prometheus")
}

// needPrometheus skips the test unless -need is set. It returns the path of Prometheus, and
// fails the test if there is none.
func needPrometheus(t *testing.T) string {
	t.Helper()
	if !*need {
		t.Skip("alerts are tried by 'make alarms'")
	}
	path, err := findPrometheus()
	if err != nil {
		t.Fatalf("a Prometheus is required here: %v", err)
	}
	return path
}

// watch starts a Prometheus that scrapes the processes at these URLs once per second.
func watch(t *testing.T, urls ...string) *prometheus {
	t.Helper()
	path := needPrometheus(t)
	rules, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	dir := storagetest.ProgramDir(t, "prometheus")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(hurry(t, string(rules))), 0o600))
	var targets []string
	for _, u := range urls {
		parsed, err := url.Parse(u)
		require.NoError(t, err)
		targets = append(targets, strconv.Quote(parsed.Host))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yml]
scrape_configs: [{job_name: tideline, static_configs: [{targets: [%s]}]}]
`, strings.Join(targets, ", ")), 0o600))
	address := "127.0.0.1:" + strconv.Itoa(storagetest.FreePort(t))
	p := &prometheus{"http://" + address}
	program := storagetest.NewProgram(dir, syscall.SIGKILL)
	t.Cleanup(program.Kill)
	cmd := exec.Command(path, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+address, "--log.level=warn")
	require.NoError(t, program.Start(cmd, p.ready))
	return p
}

// hurry divides the times in the rules by -sooner: the ranges in brackets and the "for" times.
func hurry(t *testing.T, rules string) string {
	t.Helper()
	found := 0
	rules = regexp.MustCompile(`(for: |\[)(\d+[smh])`).ReplaceAllStringFunc(rules, func(text string) string {
		found++
		at := strings.IndexAny(text, "0123456789")
		head, value := text[:at], text[at:]
		d, err := time.ParseDuration(value)
		require.NoError(t, err)
		return fmt.Sprintf("%s%dms", head, (d / time.Duration(*sooner)).Milliseconds())
	})
	require.Greater(t, found, 20, "the times of the alerts are not written as they were")
	return rules
}

func (p *prometheus) ready(ctx context.Context) error {
	return p.ask(ctx, "/api/v1/status/runtimeinfo", new(struct{}))
}

// alert is a pending or firing alert.
type alert struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
}

func (p *prometheus) ask(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return json.NewDecoder(response.Body).Decode(&struct{ Data any }{into})
}

// of returns the alert with that name and whether it fires. If several alerts have the name,
// of prefers a firing one.
func (p *prometheus) of(t *testing.T, name string) (found alert, fires bool) {
	t.Helper()
	var data struct{ Alerts []alert }
	require.NoError(t, p.ask(t.Context(), "/api/v1/alerts", &data))
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name && !fires {
			found, fires = a, a.State == "firing"
		}
	}
	return found, fires
}

// value returns the value of a query with one result, or "0" if there is no result.
func (p *prometheus) value(t *testing.T, query string) string {
	t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	require.NoError(t, p.ask(t.Context(), "/api/v1/query?query="+url.QueryEscape(query), &data))
	if len(data.Result) == 0 {
		return "0"
	}
	return data.Result[0].Value[1].(string)
}

// fault is a fault, its alerts and its cure.
type fault struct {
	what string
	// alerts are the names of the alerts that must fire.
	alerts []string
	// cause causes the fault. repeat, which may be nil, is called repeatedly until the alerts fire.
	cause, repeat func()
	// cure follows the runbook. well, which may be nil, is normal use; it is called repeatedly
	// before the fault until the alerts are quiet, and after the cure until the alerts end.
	cure, well func()
}

// try causes a fault, waits until its alerts fire, cures the fault, and waits until the alerts end.
func (p *prometheus) try(t *testing.T, f fault) {
	t.Helper()
	for _, name := range f.alerts {
		await(t, f.well, name+" does not fire beforehand", func() bool { _, fires := p.of(t, name); return !fires })
	}
	f.cause()
	caused := time.Now()
	rows := make([]row, len(f.alerts))
	fired := map[string]bool{}
	await(t, f.repeat, fmt.Sprintf("%s: %v", f.what, f.alerts), func() bool {
		for i, name := range f.alerts {
			if a, fires := p.of(t, name); fires && !fired[name] {
				fired[name] = true
				rows[i] = row{what: f.what, alert: name, fires: time.Since(caused), says: a.Annotations["summary"]}
				require.NotContains(t, a.Annotations["summary"], "error expanding")
			}
		}
		return len(fired) == len(f.alerts)
	})
	f.cure()
	cured := time.Now()
	await(t, f.well, fmt.Sprintf("the cure of %q ends %v", f.what, f.alerts), func() bool {
		for i, name := range f.alerts {
			if _, fires := p.of(t, name); !fires && rows[i].ends == 0 {
				rows[i].ends = time.Since(cured)
			}
		}
		return !slices.ContainsFunc(f.alerts, func(name string) bool { _, fires := p.of(t, name); return fires })
	})
	remember(rows)
}

// await waits until holds returns true. Between the checks it calls meanwhile, which may be nil.
func await(t *testing.T, meanwhile func(), what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		require.True(t, time.Now().Before(end), "waiting until %s", what)
		if meanwhile != nil {
			meanwhile()
		}
		select {
		case <-t.Context().Done():
			require.NoError(t, t.Context().Err())
		case <-time.After(poll):
		}
	}
}

// row records how an alert fired and ended. It becomes a row of the printed table.
type row struct {
	what, alert, says string
	fires, ends       time.Duration
}

var seen struct {
	sync.Mutex
	rows []row
}

func remember(rows []row) {
	seen.Lock()
	defer seen.Unlock()
	seen.rows = append(seen.rows, rows...)
}

// table returns all recorded rows as a Markdown table.
func table() string {
	seen.Lock()
	defer seen.Unlock()
	var text strings.Builder
	fmt.Fprintln(&text, "| caused | alert | fires after | ends after | says |\n| --- | --- | --- | --- | --- |")
	for _, r := range seen.rows {
		fmt.Fprintf(&text, "| %s | %s | %.0f s | %.0f s | %s |\n", r.what, strings.TrimPrefix(r.alert, "Tideline"), r.fires.Seconds(), r.ends.Seconds(), r.says)
	}
	return text.String()
}
