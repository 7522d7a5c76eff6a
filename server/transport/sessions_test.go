package transport

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/graph/exec/exectest"
)

// A socket ends with its session, with or without a subscription. Other sockets stay open.
func TestWatchedSessionEndsItsSockets(t *testing.T) {
	f := newFixture(t, nil)
	idle, busy := f.connect(t, modern, asUser), f.connect(t, modern, asUser)
	busy.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	busy.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	anonymous := f.connect(t, modern, "")

	require.Equal(t, []int64{0, 10}, f.watchedSessions())
	idle.Send(`{"type":"ping"}`)
	idle.Expect(`{"type":"pong"}`)
	f.endSession(10)
	idle.ExpectClose(4403)
	busy.ExpectClose(4403)
	anonymous.Send(`{"type":"ping"}`)
	anonymous.Expect(`{"type":"pong"}`)
	require.Eventually(t, func() bool { return slices.Equal(f.watchedSessions(), []int64{0}) }, 30*time.Second, time.Millisecond)
}

// A client does not mistake an interrupted stream for a complete one.
func TestInterruptedStreamClosesTheSocket(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	f.news <- exectest.Interruption{}
	p.ExpectClose(1013)
}
