// Package worldtest has what end-to-end tests of many processes share. The tideline
// binary runs as processes that are killed and started again. Users call the API. A
// crowd of clients follow their timelines with the npm package graphql-ws, with the kit in
// TypeScript, or in Go, and resume.
//
// It knows the command line and the API, and of the product's packages the Go client.
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

// Build builds the tideline binary into the directory and returns its path. With
// race it has the race detector.
func Build(dir string, race bool) (binary string, err error) {
	binary = filepath.Join(dir, "tideline")
	return binary, storagetest.Build(binary, "tideline", race)
}

// Process is a tideline that can be killed and started again at the same address.
type Process struct {
	*storagetest.Program
	// URL is where the process answers, without a path.
	URL string
	// Settings are its environment variables that begin with TIDELINE_, and others
	// that override those of the test.
	Settings []string

	binary string
	args   []string
}

// NewProcess is NewStopped, and starts the process.
func NewProcess(t *testing.T, binary string, settings []string, flag string, args ...string) *Process {
	t.Helper()
	p := NewStopped(t, binary, settings, flag, args...)
	require.NoError(t, p.Start())
	return p
}

// NewStopped returns a tideline that does not run yet. flag is the flag for its
// address. The process ends with the test, which fails if the process panicked or
// had a data race.
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
			return // it was never started
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

// Start starts the process again after Kill, and waits until it is ready.
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

// Use has the next Start take another tideline, such as one of another version.
func (p *Process) Use(binary string) { p.binary = binary }

// Ready asks /readyz once. It is nil when the process says that it is ready.
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

// Metrics returns the metrics of the process that have no labels.
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

// Subscriptions returns how many subscriptions the process serves, 0 when it does
// not answer.
func (p *Process) Subscriptions(ctx context.Context) int {
	metrics, err := p.Metrics(ctx)
	if err != nil {
		return 0
	}
	return int(metrics["tideline_live_subscriptions"])
}

// ErrRefused is wrapped by errors that the process answered: it does not work at the
// call any more.
var ErrRefused = errors.New("refused")

// callTimeout bounds calls whose context has no deadline.
const callTimeout = time.Minute

// Call runs an operation and decodes its data. An error that is not ErrRefused
// leaves open what the process did, or will do; tideline.CodeOf has the code of one that is.
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
