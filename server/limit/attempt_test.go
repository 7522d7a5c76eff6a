package limit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attempt shows a credential, and reports whether it may be looked up.
func attempt(t *testing.T, l *Limits, address string, wrong bool) (lookedUp bool) {
	t.Helper()
	done, refusal := l.Attempt(t.Context(), address)
	if refusal != nil {
		require.Positive(t, refusal.RetryAfter)
		return false
	}
	done(wrong)
	return true
}

// Wrong credentials of an address are looked up at the configured rate, regardless of right ones.
func TestWrongCredentialsOfAnAddress(t *testing.T) {
	l, server, now := newStoppedLimits(t)
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l.rates.now = func() time.Time { return clock }
	advance := func(d time.Duration) {
		now, clock = now.Add(d), clock.Add(d)
		server.SetTime(now)
	}
	for range testRates.wrong.burst + 1 { // the last one is counted as too many only after its look-up
		require.True(t, attempt(t, l, "a", false))
		require.True(t, attempt(t, l, "a", true))
	}
	before := server.CommandCount()
	for range 100 {
		require.False(t, attempt(t, l, "a", true))
		require.False(t, attempt(t, l, "a", false), "nobody knows before the look-up that it is right")
	}
	require.Equal(t, before, server.CommandCount(), "a refusal costs nothing")
	require.True(t, attempt(t, l, "b", true))

	// One token comes back each second. A suspect address gets no second attempt before the first is counted.
	advance(time.Second)
	done, refusal := l.Attempt(t.Context(), "a")
	require.Nil(t, refusal)
	require.False(t, attempt(t, l, "a", true))
	done(true)
	require.False(t, attempt(t, l, "a", true))

	// After a quiet period the address is like any other.
	advance(suspectFor + 2*time.Second)
	for range testRates.wrong.burst {
		require.True(t, attempt(t, l, "a", true))
	}
	require.Empty(t, l.rates.suspects)
}

// An address that starts many look-ups at once must wait, so that only a few are in progress when the
// first wrong credential is counted.
func TestAttemptsAtOnce(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	under := make([]func(bool), attemptsAtOnce)
	for i := range under {
		done, refusal := l.Attempt(t.Context(), "a")
		require.Nil(t, refusal)
		under[i] = done
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, refusal := l.Attempt(ended, "a")
	require.Equal(t, Busy, refusal)
	require.True(t, attempt(t, l, "b", false))

	waiting := make(chan bool)
	for range 30 {
		go func() { waiting <- attempt(t, l, "a", true) }()
	}
	for _, done := range under {
		done(true)
	}
	lookedUp := 0
	for range 30 {
		if <-waiting {
			lookedUp++
		}
	}
	require.LessOrEqual(t, lookedUp, testRates.wrong.burst+1, "each got its turn when another wrong one was counted")
	require.Empty(t, l.rates.attempts.byClient)
}

func TestSuspectsAreForgotten(t *testing.T) {
	l, server, _ := newStoppedLimits(t)
	for range testRates.wrong.burst + 1 {
		attempt(t, l, "a", true)
	}
	require.Len(t, l.rates.suspects, 1)
	for i := range maxSuspects {
		l.rates.suspects[time.Duration(i).String()] = suspect{}
	}
	for range testRates.wrong.burst + 1 {
		attempt(t, l, "b", true)
	}
	require.Len(t, l.rates.suspects, 1)
	server.Close()
	require.True(t, attempt(t, l, "c", true), "without Redis nothing is refused")
	require.True(t, attempt(t, new(Limits), "a", true))
}
