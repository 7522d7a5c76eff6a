package storagetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Program is a process that a test starts, stops in its tracks, kills and starts
// again. It ends at the latest with the test binary.
type Program struct {
	dir  string
	stop syscall.Signal
	run  atomic.Pointer[process] // nil before the first start
}

// NewProgram returns a program that does not run yet. It runs in dir, which
// [ProgramDir] made, and appends its output to the file log there; the signal stop
// ends it fast.
func NewProgram(dir string, stop syscall.Signal) *Program {
	return &Program{dir: dir, stop: stop}
}

// ProgramDir makes a directory for a program that is removed with the test binary.
func ProgramDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := newDir(name)
	require.NoError(t, err)
	return dir
}

// ProgramPath looks for an executable in PATH and where PostgreSQL's programs are
// kept. It skips the test, or fails it, when there is none, as [Real] does.
func ProgramPath(t testing.TB, name string) string {
	t.Helper()
	path, err := find(name, postgresDirs()...)
	if err != nil {
		missing(t, err)
	}
	return path
}

// Build builds a package of this module, such as "tideline", into the file out. With race it
// has the race detector, and is compiled with the flags of the test run; without, it is
// compiled as "make run" does it, which shares what that has compiled. Cost: seconds to link,
// and minutes where nothing has been compiled yet.
func Build(out, pkg string, race bool) error {
	args := []string{"build", "-o", out, pkg}
	if race {
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.Command("go", args...)
	if !race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// FreePort returns a port on which no process listens now.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	require.NoError(t, err)
	return port
}

// AsPostgres returns how to run a program as a user that PostgreSQL accepts, and
// makes that user the owner of dir.
func AsPostgres(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	attr, err := otherThanRoot(dir)
	require.NoError(t, err)
	return attr
}

// Start starts cmd, and returns when ready succeeds. It fails when the process ends
// before that.
func (p *Program) Start(cmd *exec.Cmd, ready func(context.Context) error) error {
	cmd.Dir = p.dir
	if cmd.SysProcAttr != nil {
		own := *cmd.SysProcAttr // starting changes it
		cmd.SysProcAttr = &own
	}
	run, err := start(cmd, p.stop)
	if err != nil {
		return err
	}
	p.run.Store(run)
	return run.until(ready)
}

// Kill sends the signal that ends the program fast, and waits for its end. A program
// that does not run stays as it is.
func (p *Program) Kill() { p.End(p.stop) }

// End sends sig and waits for the end of the program.
func (p *Program) End(sig syscall.Signal) {
	if run := p.run.Load(); run != nil {
		run.signal(sig)
	}
}

// Freeze stops the program in its tracks until Thaw.
func (p *Program) Freeze() { _ = p.run.Load().cmd.Process.Signal(freeze) }

// Thaw ends Freeze.
func (p *Program) Thaw() { _ = p.run.Load().cmd.Process.Signal(thaw) }

// Pid returns the process id of the last start, 0 before the first.
func (p *Program) Pid() int {
	run := p.run.Load()
	if run == nil {
		return 0
	}
	return run.cmd.Process.Pid
}

// Log returns the path of the file with the program's output.
func (p *Program) Log() string { return filepath.Join(p.dir, "log") }
