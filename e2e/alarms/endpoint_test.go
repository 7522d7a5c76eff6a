package alarms

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// endpoint is an HTTP server that receives webhooks. It answers 500 while fails is set.
type endpoint struct {
	*httptest.Server
	fails atomic.Bool
	took  atomic.Int64
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := new(endpoint)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if e.fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		e.took.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(e.Close)
	return e
}
