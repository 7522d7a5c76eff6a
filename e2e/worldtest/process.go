// Package worldtest is the shared fixture of the end-to-end tests that run several processes.
// A [Process] runs the tideline binary and can be killed and restarted. A [User] calls the
// API. [Crowd] and [Followers] are clients that subscribe to timelines and resume, with the
// npm package graphql-ws, the TypeScript client kit, or the Go client.
//
// The package uses the command line, the API and the Go client.
package worldtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
	"tideline/storage/storagetest"
)

// Build builds the tideline binary into the directory and returns its path. race
// enables the race detector.
func Build(dir string, race bool) (binary string, err error) {
	binary = filepath.Join(dir, "tideline")
	return binary, storagetest.Build(binary, "tideline", race)
}

// Process is a tideline process that can be killed and restarted at the same address.
type Process struct {
	*storagetest.Program
	// URL is the base URL of the process, without a path.
	URL string
	// Settings are environment variables for the process. The process inherits the test's
	// environment without the variables that begin with TIDELINE_; Settings override it.
	Settings []string

	binary string
	args   []string
}

// NewProcess is like NewStopped but also starts the process.
func NewProcess(t *testing.T, binary string, settings []string, flag string, args ...string) *Process {
	t.Helper()
	p := NewStopped(t, binary, settings, flag, args...)
	require.NoError(t, p.Start())
	return p
}

// NewStopped returns a process that is not running yet. flag is the command-line flag
// for its address. The process is killed when the test ends. The test fails if the
// process panicked or had a data race.
func NewStopped(t *testing.T, binary string, settings []string, flag string, args ...string) *Process {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(storagetest.FreePort(t))
	p := &Process{
		Program:  storagetest.NewProgram(storagetest.ProgramDir(t, args[0]), syscall.SIGKILL),
		URL:      "http://" + address,
		Settings: settings, binary: binary, args: append(args, flag+"="+address),
	}
	t.Cleanup(func() {
		p.Kill()
		log, err := os.ReadFile(p.Log())
		if p.Pid() == 0 {
			return // the process was never started
		}
		require.NoError(t, err)
		if t.Failed() {
			t.Logf("tideline %s:\n%s", strings.Join(p.args, " "), log[max(0, len(log)-4000):])
		}
		require.NotContains(t, string(log), "DATA RACE")
		require.NotContains(t, string(log), "panic:")
	})
	return p
}

// Start starts the process, also again after Kill, and waits until it is ready.
func (p *Process) Start() error {
	cmd := exec.Command(p.binary, p.args...)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TIDELINE_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, p.Settings...)
	return p.Program.Start(cmd, p.Ready)
}

// Use makes the next Start run another tideline binary, for example another version.
func (p *Process) Use(binary string) { p.binary = binary }

// Ready requests /readyz once. It returns nil if the process reports that it is ready.
func (p *Process) Ready(ctx context.Context) error {
	body, err := p.get(ctx, "/readyz")
	if err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	return nil
}

func (p *Process) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// Metrics returns the process's metrics without labels.
func (p *Process) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	for _, line := range metricLine.FindAllStringSubmatch(text, -1) {
		if metrics[line[1]], err = strconv.ParseFloat(line[2], 64); err != nil {
			return nil, err
		}
	}
	return metrics, nil
}

var metricLine = regexp.MustCompile(`(?m)^(\w+) (\S+)$`)

// Subscriptions returns how many subscriptions the process serves, or 0 if it does
// not answer.
func (p *Process) Subscriptions(ctx context.Context) int {
	metrics, err := p.Metrics(ctx)
	if err != nil {
		return 0
	}
	return int(metrics["tideline_live_subscriptions"])
}

// ErrRefused is wrapped by the errors that the process itself returned. The process no
// longer works on such a call.
var ErrRefused = errors.New("refused")

// callTimeout bounds each call, in addition to its context's deadline.
const callTimeout = time.Minute

// Call runs an operation and decodes its data. After ErrRefused, tideline.CodeOf
// returns the error's code. After any other error the process may have executed the
// operation, or may still execute it.
func (p *Process) Call(ctx context.Context, token, query string, variables map[string]any, data any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client := tideline.Client{URL: p.URL + "/graphql", HTTP: http.DefaultClient}
	if token != "" {
		client.Token = tideline.Fixed(token)
	}
	err := client.Query(ctx, query, variables, data)
	if code := tideline.CodeOf(err); code != "" && !strings.HasPrefix(code, "HTTP_") {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
