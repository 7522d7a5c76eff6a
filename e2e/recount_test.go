package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// The command recount compares and repairs counters next to a running server.
func TestRecount(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	stores := storagetest.Real(t)
	settings := shared(stores)
	server := start(t, settings, "server", "--addr=127.0.0.1:0")
	ann, ben := signUp(t, server, "ann"), signUp(t, server, "ben")
	ben.follow(t, server, ann)
	ann.post(t, server, "one")
	recount := func(args ...string) (int, string) {
		t.Helper()
		return run(t, settings, append([]string{"recount"}, args...)...)
	}
	code, out := recount()
	require.Zero(t, code, out)
	require.Equal(t, "3 rows, 0 counters are wrong\n", out)

	_, err := stores.SQL.ExecContext(t.Context(), `UPDATE users SET follower_count = 7 WHERE handle = 'ann'`)
	require.NoError(t, err)
	_, err = stores.SQL.ExecContext(t.Context(), `UPDATE posts SET like_count = 2`)
	require.NoError(t, err)
	code, out = recount()
	require.NotZero(t, code)
	require.Regexp(t, `(?m)^user \d+: follower_count is 7, should be 1$`, out)
	require.Regexp(t, `(?m)^post \d+: like_count is 2, should be 0$`, out)
	require.Contains(t, out, "3 rows, 2 counters are wrong\n")
	require.Contains(t, out, "--repair")
	code, out = recount("--repair")
	require.Zero(t, code, out)
	require.Contains(t, out, "3 rows, 2 counters are wrong and set right\n")
	code, out = recount()
	require.Zero(t, code, out)
}
