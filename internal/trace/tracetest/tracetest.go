// Package tracetest provides a trace collector for tests.
package tracetest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// patience is how long a test waits for expected spans.
const patience = 90 * time.Second

// Span is a span that a process has sent. Parent is "" at the root of a trace.
type Span struct {
	Trace, ID, Parent, Name string
	Role                    string // of the process
	Attributes              map[string]string
	Links                   int
}

// Collector accepts spans by OTLP over HTTP, as binary protobuf.
type Collector struct {
	// URL is the address of the collector, without a path.
	URL string
	// Asked receives a value when a process sends spans. It holds at most one value.
	Asked chan struct{}

	mu     sync.Mutex
	spans  []Span
	header http.Header
	hang   chan struct{} // if not nil, requests block until it is closed
}

// New returns a collector that is closed when the test ends.
func New(t testing.TB) *Collector { return open(t, nil) }

// NewHanging returns a collector that does not answer before the test ends.
func NewHanging(t testing.TB) *Collector { return open(t, make(chan struct{})) }

func open(t testing.TB, hang chan struct{}) *Collector {
	c := &Collector{Asked: make(chan struct{}, 1), hang: hang}
	server := httptest.NewServer(c)
	c.URL = server.URL
	t.Cleanup(func() {
		if hang != nil {
			close(hang)
		}
		server.Close()
	})
	return c
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.header = r.Header
	for _, of := range sent.ResourceSpans {
		role := attributes(of.Resource.Attributes)["tideline.role"]
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, Span{
					hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), s.Name,
					role, attributes(s.Attributes), len(s.Links),
				})
			}
		}
	}
	c.mu.Unlock()
	select {
	case c.Asked <- struct{}{}:
	default:
	}
	if c.hang != nil {
		<-c.hang
	}
}

func attributes(list []*common.KeyValue) map[string]string {
	of := map[string]string{}
	for _, a := range list {
		of[a.Key] = a.Value.GetStringValue()
	}
	return of
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Header returns the header of the last request.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

// Await waits until holds returns true for the received spans, and returns them.
func (c *Collector) Await(t testing.TB, what string, holds func([]Span) bool) []Span {
	t.Helper()
	for late := time.After(patience); ; {
		spans := c.Spans()
		if holds(spans) {
			return spans
		}
		select {
		case <-c.Asked:
		case <-late:
			t.Fatalf("spans are missing: %s; sent were %v", what, spans)
		}
	}
}

// Path returns the names from the span up to the root of its trace. The last name is "?" if an
// ancestor was not sent.
func Path(spans []Span, from Span) []string {
	names := []string{from.Name}
	for from.Parent != "" {
		i := slices.IndexFunc(spans, func(s Span) bool { return s.ID == from.Parent && s.Trace == from.Trace })
		if i < 0 {
			return append(names, "?")
		}
		from = spans[i]
		names = append(names, from.Name)
	}
	return names
}

// Find returns the spans with this name.
func Find(spans []Span, name string) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Name != name })
}
