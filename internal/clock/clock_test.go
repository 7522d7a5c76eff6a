package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/internal/clock"
)

func TestWithin(t *testing.T) {
	now := time.Now() // with a monotonic reading
	wall := now.Round(0)
	for _, c := range []struct {
		a, b time.Time
		want bool
	}{
		{now, now.Add(time.Second), true},
		{now.Add(time.Second), now, true},
		{now, now.Add(time.Second + 1), false},
		{wall, wall.Add(-time.Second), true},
		{wall, wall.Add(-time.Second - 1), false},
	} {
		require.Equal(t, c.want, clock.Within(time.Second, c.a, c.b), "%v and %v", c.a, c.b)
	}
}
