package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// A server process is stopped for so long that it is taken for dead, and goes on: its
// client gets what came meanwhile, first of what the connection to Redis still held,
// then of what nobody sent to it.
func TestStoppedServerGoesOn(t *testing.T) {
	t.Parallel()
	stores := storagetest.Real(t)
	env := shared(stores)
	start(t, env, "worker", "--worker-addr=127.0.0.1:0")
	other, p := start(t, env, "server", "--addr=127.0.0.1:0"), start(t, env, "server", "--addr=127.0.0.1:0")
	ann, ben := signUp(t, other, "ann"), signUp(t, other, "ben")
	ben.follow(t, other, ann)
	f := ben.watch(t, p)
	ann.post(t, other, "one")
	f.added("one")

	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	ann.post(t, other, "two")
	require.Eventually(t, func() bool { // the presence of the one that is stopped has ended
		servers, err := stores.Redis.ZCard(t.Context(), "live:procs").Result()
		return err == nil && servers == 1
	}, time.Minute, 100*time.Millisecond)
	ann.post(t, other, "three")
	ben.arrived(t, other, "three", "two", "one")
	p.signal(syscall.SIGCONT)
	f.added("two")
	f.added("three")
}
