package transport

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/session"
	"tideline/graph/exec/exectest"
)

// A socket ends with its session, with or without a subscription. Other sockets stay open.
func TestWatchedSessionEndsItsSockets(t *testing.T) {
	f := newFixture(t, nil)
	gone := map[session.Grant]bool{}
	f.sockets.sessions = newSessions(func(_ context.Context, grants []session.Grant) (ended []session.Grant, err error) {
		for _, g := range grants {
			if gone[g] {
				ended = append(ended, g)
			}
		}
		return ended, nil
	}, slog.New(slog.DiscardHandler))

	idle, busy := f.connect(t, modern, asUser), f.connect(t, modern, asUser)
	busy.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	busy.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	anonymous := f.connect(t, modern, "")

	require.NoError(t, f.sockets.sessions.check(t.Context()))
	idle.Send(`{"type":"ping"}`)
	idle.Expect(`{"type":"pong"}`)
	gone[session.Grant{Session: 10}] = true
	require.NoError(t, f.sockets.sessions.check(t.Context()))
	idle.ExpectClose(4403)
	busy.ExpectClose(4403)
	anonymous.Send(`{"type":"ping"}`)
	anonymous.Expect(`{"type":"pong"}`)
	require.Eventually(t, func() bool {
		f.sockets.sessions.mu.Lock()
		defer f.sockets.sessions.mu.Unlock()
		return len(f.sockets.sessions.watched) == 0
	}, 30*time.Second, time.Millisecond)

	f.sockets.sessions.ended = func(context.Context, []session.Grant) ([]session.Grant, error) { return nil, errors.New("no database") }
	f.connect(t, modern, asUser)
	require.Error(t, f.sockets.sessions.check(t.Context()))
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
