package transport

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/server/limit"
)

// An address that has shown too many wrong credentials is refused on every transport without a look-up. Known
// credentials and anonymous clients at the address are not affected.
func TestWrongCredentialsAreNotLookedUpForEver(t *testing.T) {
	var lookUps atomic.Int64
	f := newFixture(t, func(c *Config) {
		authenticate := c.Authenticate
		c.Authenticate = func(ctx context.Context, token string) (session.Viewer, time.Time, error) {
			lookUps.Add(1)
			return authenticate(ctx, token)
		}
		c.Recall = func(token string) (session.Viewer, time.Time, bool) {
			return session.Viewer{ID: 3, Session: 30}, time.Now().Add(time.Hour), token == "known"
		}
		c.Limits = limits(t, func(c *limit.Config) { c.RateCredentials = 5 }) // a burst of ten
	})
	const hello = `{"query":"{hello}"}`
	for range 11 { // the last one is counted as too many only after its look-up
		require.Equal(t, http.StatusUnauthorized, f.ask(t, http.MethodPost, "mallory", "{hello}").response.StatusCode)
	}
	before := lookUps.Load()
	refused := f.ask(t, http.MethodPost, "mallory", "{hello}").response
	require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, f.ask(t, http.MethodPost, "alice", "{hello}").response.StatusCode, "nobody knows that it is good")
	p := f.dial(t, modern)
	p.Send(messageOf("connection_init", `{"Authorization":"Bearer mallory"}`))
	p.ExpectClose(1013)
	require.Equal(t, before, lookUps.Load())

	require.Equal(t, http.StatusOK, f.ask(t, http.MethodPost, "known", "{hello}").response.StatusCode)
	require.Equal(t, http.StatusOK, f.ask(t, http.MethodPost, "", "{hello}").response.StatusCode)
	known := f.connect(t, modern, `{"Authorization":"Bearer known"}`)
	known.Send(`{"id":"1","type":"subscribe","payload":` + hello + `}`)
	known.Expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)
	require.Equal(t, before, lookUps.Load())
}

// If a server's key is valid but names a missing user to act for, the credential does not count as wrong.
func TestNobodyToActForIsNoWrongCredential(t *testing.T) {
	f := newFixture(t, func(c *Config) {
		c.Authenticate = func(context.Context, string) (v session.Viewer, expires time.Time, err error) {
			return v, expires, refusal.New(refusal.NobodyToActFor, "There is no such user to act for.")
		}
		c.Limits = limits(t, func(c *limit.Config) { c.RateCredentials = 1 })
	})
	for range 10 {
		require.Equal(t, http.StatusUnauthorized, f.ask(t, http.MethodPost, "key", "{hello}").response.StatusCode)
	}
}
