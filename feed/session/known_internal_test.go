package session

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
	hash, s := hashOf("token"), Found{Viewer: Viewer{ID: 1, Session: 2}, Expires: now.Add(time.Hour), checked: now, used: now}
	_, ends, known := k.find(hash, now)
	require.False(t, known)
	k.forget(2) // while SQL was being queried
	k.remember(hash, s, ends)
	_, ends, known = k.find(hash, now)
	require.False(t, known)
	k.remember(hash, s, ends)
	_, _, known = k.find(hash, now)
	require.True(t, known)
	k.open([]Grant{{Session: 2}, {Session: 3}}, now.Add(trustFor))
	_, _, known = k.find(hash, now.Add(2*trustFor))
	require.True(t, known)
	_, _, known = k.find(hash, now.Add(time.Hour))
	require.False(t, known, "it has expired")
	require.Empty(t, k.inUse(now.Add(time.Hour)))
	require.Empty(t, k.byHash)
	require.Empty(t, k.byID)
}

// After the machine was suspended, remembered sessions are not trusted, although the monotonic
// clock stood still.
func TestASuspendedMachineRemembersNoSession(t *testing.T) {
	t.Parallel()
	var k knownSessions
	k.run(true)
	now := time.Now()
	k.remember(hashOf("token"), Found{Expires: now.Add(2 * time.Hour), checked: now, used: now}, k.ends)
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
		k.remember(Hash{byte(i), byte(i >> 8), byte(i >> 16)}, Found{Viewer: Viewer{Session: i}}, k.ends)
		require.LessOrEqual(t, len(k.byHash), maxKnown)
		require.Len(t, k.byID, len(k.byHash))
	}
}
