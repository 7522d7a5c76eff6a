// Package hostile attacks the tideline binary like strangers on the open internet, with
// expensive requests and floods of connections. It also runs the GraphQL over HTTP audit of
// the npm package graphql-http ("npm ci" in this directory).
//
// The tests try values just below and just above each limit. A refusal must come within two
// seconds. Afterwards the process must be healthy and its memory bounded. The binary is
// built without the race detector, which would distort the measurements. Open files and
// memory are read from /proc, so they are checked only on Linux.
//
// Without node or the npm package the audit is skipped with a message. With
// TIDELINE_TEST_REQUIRE_REAL=1 it fails instead.
package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

const (
	patience = 3 * time.Minute
	poll     = 20 * time.Millisecond

	// refusal bounds the time of a refusal.
	refusal = 2 * time.Second
	// memory bounds the resident memory of a process, in MiB.
	memory = 600
)

var binary string

func TestMain(m *testing.M) {
	if storagetest.LeftOut() {
		return
	}
	dir, err := os.MkdirTemp("", "tideline-hostile")
	if err == nil {
		binary = filepath.Join(dir, "tideline")
		err = storagetest.Build(binary, "tideline", false) // no race detector: it would distort the measurements
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}

// target is a running tideline process. It uses embedded stores unless its arguments say
// otherwise.
type target struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	dir string
}

// transcript collects the output of a process.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// start runs a process until the test ends. The process must be healthy at that time.
func start(t *testing.T, args ...string) *target {
	t.Helper()
	dir, out := t.TempDir(), new(transcript)
	p := &target{t: t, dir: dir, cmd: exec.Command(binary, append([]string{"--addr=127.0.0.1:0", "--data-dir=" + dir}, args...)...)}
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "TIDELINE_") })
	p.cmd.Stdout, p.cmd.Stderr = out, out
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.healthy()
		p.cmd.Process.Kill()
		p.cmd.Wait()
		if t.Failed() {
			text := out.String()
			t.Logf("tideline: %s", text[max(0, len(text)-5000):])
		}
		require.NotContains(t, out.String(), "panic")
	})
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	require.Eventually(t, func() bool {
		p.url = address.FindString(out.String())
		return p.url != "" && p.ready()
	}, patience, poll)
	return p
}

func (p *target) ready() bool {
	response, err := http.Get(p.url + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// healthy checks that the process is ready and its memory is bounded.
func (p *target) healthy() {
	p.t.Helper()
	assert.True(p.t, p.ready(), "the process is ready")
	if used := p.rss(); used > memory {
		assert.Fail(p.t, "too much memory", "%d MiB", used)
	}
}

// rss returns the resident memory of the process in MiB, or 0 if it is unknown.
func (p *target) rss() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	kib := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(status)
	if kib == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(kib[1]))
	return n >> 10
}

// files returns the number of open files of the process, or 0 if it is unknown.
func (p *target) files() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return len(entries)
}

// metric returns the value of a gauge without labels, or -1 if it is unavailable.
func (p *target) metric(name string) int {
	response, err := http.Get(p.url + "/metrics")
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	found := regexp.MustCompile(`(?m)^` + name + ` ([0-9.e+]+)$`).FindSubmatch(body)
	if found == nil {
		return -1
	}
	value, _ := strconv.ParseFloat(string(found[1]), 64)
	return int(value)
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// send sends a POST with the body, or a GET with a trivial query if the body is "".
func (p *target) send(body string, change ...func(*http.Request)) answer {
	p.t.Helper()
	method, path := http.MethodPost, "/graphql"
	if body == "" {
		method, path = http.MethodGet, "/graphql?query={__typename}"
	}
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	require.NoError(p.t, err)
	request.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(request)
	}
	begin := time.Now()
	response, err := http.DefaultClient.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return answer{response.StatusCode, response.Header, string(text), time.Since(begin)}
}

// ask sends a document and its variables in a POST.
func (p *target) ask(query string, variables map[string]any, change ...func(*http.Request)) answer {
	p.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	require.NoError(p.t, err)
	return p.send(string(body), change...)
}

// signUp creates a user and returns the session token.
func (p *target) signUp(handle string) string {
	p.t.Helper()
	got := p.ask(`mutation($h: String!) { signUp(input: {handle: $h, password: "correct horse"}) { token } }`, map[string]any{"h": handle})
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(got.body)
	require.NotNil(p.t, token, got.body)
	return token[1]
}

func as(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}
