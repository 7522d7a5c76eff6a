package refusal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneRefusalOfAKindIsLoggedAtATime(t *testing.T) {
	var log Log
	now := time.Now()
	for _, kind := range []string{"a", "b"} {
		omitted, due := log.Due(kind, now)
		require.True(t, due)
		require.Zero(t, omitted)
		for range 5 {
			_, due = log.Due(kind, now.Add(logEvery-1))
			require.False(t, due)
		}
	}
	omitted, due := log.Due("a", now.Add(logEvery))
	require.True(t, due)
	require.Equal(t, 5, omitted)
	_, due = log.Due("a", now.Add(logEvery))
	require.False(t, due)
}
