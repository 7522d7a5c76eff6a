// Package resume shows that a live timeline never loses a change silently: clients
// disconnect and resume by their cursors, while servers and workers are killed and
// Redis is restarted, wiped and cut off. In the end each client has exactly what
// the timeline says.
//
// It drives the tideline binary, built with the race detector, and the npm package
// graphql-ws ("npm ci" in the directory above), for a little over a minute.
package resume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	patience = 90 * time.Second
	poll     = 20 * time.Millisecond
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tideline-resume")
	if err == nil {
		binary = filepath.Join(dir, "tideline")
		var out []byte
		if out, err = exec.Command("go", "build", "-race", "-o", binary, "tideline").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		os.Exit(1)
	}
	storagetest.Main(m, func() error { return os.RemoveAll(dir) })
}

// process is a tideline that can be killed and started again at the same address.
type process struct {
	t        *testing.T
	settings []string
	args     []string
	url      string
	cmd      *exec.Cmd
	done     chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// newProcess starts tideline; flag is the flag for its address.
func newProcess(t *testing.T, settings []string, flag string, args ...string) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	p := &process{t: t, settings: settings, args: append(args, flag+"="+address), url: "http://" + address}
	p.start()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			out := p.out.String()
			t.Logf("tideline %s:\n%s", strings.Join(p.args, " "), out[max(0, len(out)-4000):])
		}
		require.NotContains(t, p.out.String(), "DATA RACE")
		require.NotContains(t, p.out.String(), "panic:")
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(binary, p.args...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TIDELINE_") {
			p.cmd.Env = append(p.cmd.Env, entry)
		}
	}
	p.cmd.Env = append(p.cmd.Env, p.settings...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(p.t, p.cmd.Start())
	done, cmd := make(chan struct{}), p.cmd
	p.done = done
	go func() { defer close(done); _ = cmd.Wait() }()
	require.Eventually(p.t, func() bool {
		response, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, poll, "%s is not ready", p.args)
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) signal(sig syscall.Signal) { require.NoError(p.t, p.cmd.Process.Signal(sig)) }

var subscriptionsIn = regexp.MustCompile(`(?m)^tideline_live_subscriptions (\d+)$`)

// subscriptions returns how many subscriptions the process serves, 0 when it does
// not answer.
func (p *process) subscriptions() int {
	response, err := http.Get(p.url + "/metrics")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	found := subscriptionsIn.FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}

// call runs an operation and decodes its data.
func (p *process) call(token, query string, variables map[string]any, data any) error {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, p.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Data   json.RawMessage
		Errors []json.RawMessage
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return errors.New(string(answer.Errors[0]))
	}
	if data == nil {
		return nil
	}
	return json.Unmarshal(answer.Data, data)
}
