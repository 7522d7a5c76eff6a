package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Program is a process that a test can start, suspend, kill and start again. It ends at the latest
// with the test binary.
type Program struct {
	dir  string
	stop syscall.Signal
	run  atomic.Pointer[process] // nil before the first start
}

// NewProgram returns a program that does not run yet. It will run in dir, which [ProgramDir]
// created, and append its output to the file log there. The signal stop ends it quickly.
func NewProgram(dir string, stop syscall.Signal) *Program {
	return &Program{dir: dir, stop: stop}
}

// ProgramDir creates a directory for a program. It is removed when the test binary ends.
func ProgramDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := newDir(name)
	require.NoError(t, err)
	return dir
}

// ProgramPath looks for an executable in PATH and in PostgreSQL's directories. If there is none, it
// skips or fails the test, as [Real] does.
func ProgramPath(t testing.TB, name string) string {
	t.Helper()
	path, err := find(name, postgresDirs()...)
	if err != nil {
		Missing(t, err)
	}
	return path
}

// Build builds a package of this module, such as "tideline", into the file out, with the compile
// flags of the test run. With race, the program has the race detector. Without race, "make test"
// compiles it like "make run", so the two share the build cache.
//
// A test result that depends on a built program is not reused; see [RunEveryTime].
//
// Cost: seconds to link, and minutes if nothing has been compiled yet.
func Build(out, pkg string, race bool) error {
	RunEveryTime()
	args := []string{"build", "-o", out, pkg}
	if race {
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.Command("go", args...)
	if !race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// RunEveryTime makes "make test" run the tests of this test binary each time. For other packages
// "go test" reuses the results while nothing changes that it knows of: code, files that the tests
// open, and environment variables that they read. It does not know what programs that the tests
// start depend on. The Makefile gives TIDELINE_TEST_RUN another value in each run.
func RunEveryTime() { _ = os.Getenv("TIDELINE_TEST_RUN") }

// Chromium returns the path of a Chromium browser. It prefers the headless shell, which takes half the
// processor time: 121 s for the fast tests of the app, where the whole browser took 234 s. If none is in
// PATH, the test is skipped, or fails if TIDELINE_TEST_REQUIRE_REAL is 1.
func Chromium(t testing.TB) (path string) {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, errors.New("no Chromium in PATH"))
	return ""
}

// FreePort returns a port on which no process listens now.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	require.NoError(t, err)
	return port
}

// FreeAddress returns the address of a FreePort on this machine.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return "127.0.0.1:" + strconv.Itoa(FreePort(t))
}

// AsPostgres returns attributes that run a program as a user that PostgreSQL accepts, and makes
// that user the owner of dir.
func AsPostgres(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	attr, err := otherThanRoot(dir)
	require.NoError(t, err)
	return attr
}

// Start starts cmd and returns when ready succeeds. It fails if the process ends before that.
func (p *Program) Start(cmd *exec.Cmd, ready func(context.Context) error) error {
	cmd.Dir = p.dir
	if cmd.SysProcAttr != nil {
		own := *cmd.SysProcAttr // start modifies it
		cmd.SysProcAttr = &own
	}
	run, err := start(cmd, p.stop)
	if err != nil {
		return err
	}
	p.run.Store(run)
	return run.until(ready)
}

// Kill sends the signal stop and waits until the program has ended. It has no effect if the program
// does not run.
func (p *Program) Kill() { p.End(p.stop) }

// End sends sig and waits until the program has ended.
func (p *Program) End(sig syscall.Signal) {
	if run := p.run.Load(); run != nil {
		run.signal(sig)
	}
}

// Freeze suspends the program until Thaw.
func (p *Program) Freeze() { _ = p.run.Load().cmd.Process.Signal(freeze) }

// Thaw ends Freeze.
func (p *Program) Thaw() { _ = p.run.Load().cmd.Process.Signal(thaw) }

// Pid returns the process id of the last start, or 0 before the first.
func (p *Program) Pid() int {
	run := p.run.Load()
	if run == nil {
		return 0
	}
	return run.cmd.Process.Pid
}

// Log returns the path of the program's output file.
func (p *Program) Log() string { return filepath.Join(p.dir, "log") }
