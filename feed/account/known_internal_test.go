package account

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// An answer that SQL gave before a session ended is not remembered after the end was received.
func TestAnOldAnswerIsNotRemembered(t *testing.T) {
	t.Parallel()
	var k knownSessions
	k.run(true)
	now := time.Now()
	token, s := hashOf("token"), knownSession{viewer: Viewer{ID: 1, Session: 2}, expires: now.Add(time.Hour), checked: now, used: now}
	_, ends, known := k.find(token, now)
	require.False(t, known)
	k.forget(2) // while SQL was being queried
	k.remember(token, s, ends)
	_, ends, known = k.find(token, now)
	require.False(t, known)
	k.remember(token, s, ends)
	_, _, known = k.find(token, now)
	require.True(t, known)
	k.open([]int64{2, 3}, now.Add(trustFor))
	_, _, known = k.find(token, now.Add(2*trustFor))
	require.True(t, known)
	_, _, known = k.find(token, now.Add(time.Hour))
	require.False(t, known, "it has expired")
	require.Empty(t, k.inUse(now.Add(time.Hour)))
	require.Empty(t, k.byToken)
	require.Empty(t, k.byID)
}

// After the machine was suspended, remembered sessions are not trusted, although the monotonic
// clock stood still.
func TestASuspendedMachineRemembersNoSession(t *testing.T) {
	t.Parallel()
	var k knownSessions
	k.run(true)
	now := time.Now()
	k.remember(hashOf("token"), knownSession{expires: now.Add(2 * time.Hour), checked: now, used: now}, k.ends)
	woken := now.Add(time.Hour)
	*(*int64)(unsafe.Add(unsafe.Pointer(&woken), unsafe.Sizeof(uint64(0)))) -= int64(time.Hour) // its monotonic clock
	require.Zero(t, woken.Sub(now))
	_, _, known := k.find(hashOf("token"), woken)
	require.False(t, known)
	_, _, known = k.find(hashOf("token"), now)
	require.True(t, known)
}

// A process remembers at most maxKnown sessions.
func TestRememberedSessionsAreBounded(t *testing.T) {
	t.Parallel()
	var k knownSessions
	k.run(true)
	for i := range int64(2*maxKnown + 1) {
		k.remember(tokenHash{byte(i), byte(i >> 8), byte(i >> 16)}, knownSession{viewer: Viewer{Session: i}}, k.ends)
		require.LessOrEqual(t, len(k.byToken), maxKnown)
		require.Len(t, k.byID, len(k.byToken))
	}
}
