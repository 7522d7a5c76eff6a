package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a running tideline process.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *transcript
	url  string        // base URL, without a path
	done chan struct{} // closed when the process has ended
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

// command returns a tideline command with these arguments and settings, as NAME=value. It
// removes Tideline's settings from the environment of the tests. Requests may take long, because the
// machine may be busy.
func command(ctx context.Context, settings []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "TIDELINE_")
	}), append([]string{"TIDELINE_REQUEST_TIMEOUT=1m"}, settings...)...)
	return cmd
}

// launch starts a process. It is killed when the test ends, if it is still running.
func launch(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: command(t.Context(), settings, args...), out: new(transcript), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the method ended returns the exit code
	}()
	t.Cleanup(func() {
		p.kill()
		out := p.out.String()
		if t.Failed() {
			t.Logf("tideline %s:\n%s", strings.Join(args, " "), out[max(0, len(out)-5000):])
		}
		require.NotContains(t, out, "DATA RACE")
		require.NotContains(t, out, "panic:")
	})
	return p
}

// start is like launch but also waits until the process is ready.
func start(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	p := launch(t, settings, args...)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	p.await("it is ready", func() bool {
		if p.url = address.FindString(p.out.String()); p.url == "" {
			return false
		}
		status, _ := p.get("/readyz")
		return status == http.StatusOK
	})
	return p
}

// await waits until the condition holds. It fails early if the process ends.
func (p *process) await(what string, holds func() bool) {
	p.t.Helper()
	ended := false
	require.Eventually(p.t, func() bool {
		select {
		case <-p.done:
			ended = true
			return true
		default:
			return holds()
		}
	}, patience, poll, "waiting until %s", what)
	require.False(p.t, ended, "the process has ended while waiting until %s:\n%s", what, p.out)
}

func (p *process) get(path string) (status int, body string) {
	response, err := http.Get(p.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(raw)
}

// subscribed waits until the process serves exactly n subscriptions.
func (p *process) subscribed(n int) {
	p.t.Helper()
	p.await(fmt.Sprintf("%d subscriptions are served", n), func() bool {
		_, metrics := p.get("/metrics")
		return strings.Contains(metrics, "\ntideline_live_subscriptions "+strconv.Itoa(n)+"\n")
	})
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// stop ends the process with SIGTERM, like a supervisor, and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.ended()
}

// ended waits until the process has ended and returns its exit code.
func (p *process) ended() int {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}, patience, poll, "waiting for the end of the process")
	return p.cmd.ProcessState.ExitCode()
}

// kill kills the process with SIGKILL. The process may have ended already.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
