package timeline

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A master has returned when it serves and did not serve before, or was unknown.
func TestReturned(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	m := newMasters(nil)
	for _, step := range []struct {
		answers  map[string]error
		returned bool
	}{
		{map[string]error{"a": nil, "b": away}, true}, // the first call knows nothing of the time before
		{map[string]error{"a": nil, "b": away}, false},
		{map[string]error{"a": nil, "b": nil}, true},
		{map[string]error{"a": nil, "b": nil}, false},
		{map[string]error{"a": away, "b": away}, false},
		{map[string]error{"a": nil, "b": away}, true},
		{map[string]error{"a": nil, "c": nil}, true}, // c took over from b
		{map[string]error{"a": nil}, false},
	} {
		require.Equal(t, step.returned, m.Returned(step.answers), step.answers)
	}
}

// The error keeps the users that were not reached, so that the caller can handle them later.
func TestTolerateKeepsTheUsers(t *testing.T) {
	t.Parallel()
	m := newMasters(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	away := &net.OpError{Op: "dial", Err: errors.New("refused")}
	var some *Unreached
	require.ErrorAs(t, m.MarkUnreached(t.Context(), fmt.Errorf("forget: %w", &Unreached{Users: []int64{7}, Err: away})), &some)
	require.Equal(t, []int64{7}, some.Users)
	require.ErrorAs(t, m.MarkUnreached(t.Context(), away), &some)
	require.Empty(t, some.Users)
	require.False(t, errors.As(m.MarkUnreached(t.Context(), errors.New("no luck")), &some))
}
