package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds the start of a program, which is slow on a busy machine.
const startTimeout = 90 * time.Second

// farm holds all servers and directories of this test binary.
var farm struct {
	mu        sync.Mutex
	dir       string // parent of all directories
	dirs      int
	processes map[*process]struct{}
	// starts is served by one goroutine on its own thread: on Linux, a server dies with the thread
	// that started it, not with the process.
	starts chan func()
}

// process is a running server.
type process struct {
	cmd  *exec.Cmd
	stop syscall.Signal // signal that ends it quickly
	done chan struct{}  // closed when the process has ended
}

// start runs a server and appends its output to the file log in its directory. The signal stop ends
// the server quickly. The server ends at the latest with the test binary.
func start(cmd *exec.Cmd, stop syscall.Signal) (*process, error) {
	out, err := os.OpenFile(filepath.Join(cmd.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	// The output goes to a file, because go test would wait until all processes have closed a pipe.
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithParent(cmd.SysProcAttr, stop)

	farm.mu.Lock()
	defer farm.mu.Unlock()
	if farm.starts == nil {
		farm.processes = map[*process]struct{}{}
		farm.starts = make(chan func())
		go func(starts <-chan func()) {
			runtime.LockOSThread() // never unlocked: the thread ends with the loop
			for f := range starts {
				f()
			}
		}(farm.starts)
	}
	started := make(chan error)
	farm.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stop: stop, done: make(chan struct{})}
	farm.processes[p] = struct{}{}
	go func() {
		_ = cmd.Wait() // the log says how it ended
		farm.mu.Lock()
		delete(farm.processes, p)
		farm.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

// signal sends sig and waits for the end of the process.
func (p *process) signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // fails only if the process has ended already
	<-p.done
}

// until waits until ready succeeds. It gives up early if the process ends.
func (p *process) until(ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.done:
			return p.failed(errors.New("ended at its start"))
		case <-ctx.Done():
			return p.failed(err)
		}
	}
}

func (p *process) failed(err error) error {
	log, _ := os.ReadFile(filepath.Join(p.cmd.Dir, "log"))
	return fmt.Errorf("%s: %w\n%s", filepath.Base(p.cmd.Path), err, log[max(0, len(log)-2000):])
}

// newDir creates a directory that is removed when the test binary ends. Its path is short, because
// paths of sockets are limited. Other users may enter it: PostgreSQL refuses to run as root, and then
// runs as another user.
func newDir(name string) (string, error) {
	farm.mu.Lock()
	defer farm.mu.Unlock()
	if farm.dir == "" {
		dir, err := os.MkdirTemp("", "tl")
		if err != nil {
			return "", err
		}
		if err := os.Chmod(dir, 0o711); err != nil {
			return "", err
		}
		farm.dir = dir
	}
	farm.dirs++
	dir := filepath.Join(farm.dir, fmt.Sprintf("%s%d", name, farm.dirs))
	return dir, os.Mkdir(dir, 0o711)
}

// stopAll ends every server and removes every directory.
func stopAll() {
	farm.mu.Lock()
	var running []*process
	for p := range farm.processes {
		running = append(running, p)
	}
	if farm.starts != nil {
		close(farm.starts)
		farm.starts = nil
	}
	dir := farm.dir
	farm.dir = ""
	farm.mu.Unlock()
	for _, p := range running {
		p.signal(p.stop)
	}
	if dir != "" {
		_ = os.RemoveAll(dir) // what cannot be removed stays in the temporary directory
	}
}

// freePort returns a port on which no process listens. It is below the ports that systems give to
// outgoing connections, which begin at 32768 on Linux: one of those may be in use a moment later.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 10_000 + rand.N(22_000)
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// find looks for a program in the given directories, which may be patterns, and then in PATH. Of
// several matches in one pattern it takes the last by name.
func find(name string, dirs ...string) (string, error) {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(dir, name)) // a malformed pattern matches nothing
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: %w", name, err)
	}
	return path, nil
}
