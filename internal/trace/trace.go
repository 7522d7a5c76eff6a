// Package trace follows sampled operations through all processes and exports them as OpenTelemetry
// spans.
//
// One trace covers the operation of a client, its SQL statements, its job, the worker that runs the
// job, the events that the job publishes, and the writes to sockets. The server that receives an
// operation decides whether to sample it. Within a process, the context carries the trace. Between
// processes, the payload of a job and the pub/sub message carry it.
//
// Invariants:
//
//   - Traced work never waits for the collector. Spans are sent in the background in bounded
//     batches, and dropped when the collector is unavailable.
//   - A segment has at most maxSpans spans. A segment is the part of a trace that one process
//     contributes for one operation, job or message.
//   - A span contains no text of a user, no argument of a statement and no Redis key.
//   - A client does not influence sampling. The trace of a client is linked, whether it is sampled
//     or not.
//   - Without a Tracer, nothing allocates.
package trace

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxSpans bounds the spans of a segment. A fan-out to a million followers would otherwise have
// some thousands.
const maxSpans = 1000

// on says that this process has, or had, a Tracer. Until then, contexts are not examined.
var on atomic.Bool

type (
	stretchKey struct{} // context key of a *stretch
	callerKey  struct{} // context key of the traceparent that a client sent, a string
)

// stretch is the segment of a context: it holds the place at which new spans are added.
type stretch struct{ at atomic.Pointer[Place] }

// Place is a position in a trace at which other work can continue. It is nil when nothing is
// traced.
type Place struct {
	tracer trace.Tracer
	span   trace.SpanContext
	left   *atomic.Int64 // how many more spans the segment may have
}

// Span is a timed operation in a trace. The methods of a nil Span, which stands for work that is
// not traced, do nothing.
type Span struct {
	span trace.Span
	left *atomic.Int64 // set in the first span of a segment
}

// Operation begins the trace of a client's operation that was read at begun, if the operation is
// sampled. The client chooses name; kind and the first root field name the span.
func (t *Tracer) Operation(ctx context.Context, begun time.Time, kind, name string, fields func() []string) (context.Context, *Span) {
	if t == nil || rand.Float64() >= t.share {
		return ctx, nil
	}
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(begun)}
	if caller, _ := ctx.Value(callerKey{}).(string); caller != "" {
		if remote := parse(ctx, caller); remote.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
		}
	}
	what := kind
	if fields := fields(); len(fields) > 0 { // none when all are skipped
		what += " " + fields[0]
	}
	ctx, s := t.enter(ctx, trace.SpanKindServer, what, options...)
	s.Text("graphql.operation.type", kind)
	if name != "" {
		s.Text("graphql.operation.name", clip(name, maxName))
	}
	return ctx, s
}

// WithCaller returns a context with the trace that a client sent in the header. Operation links to
// it.
func WithCaller(ctx context.Context, header http.Header) context.Context {
	if !on.Load() {
		return ctx
	}
	caller := header.Get("Traceparent")
	if caller == "" {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, caller)
}

// Continue continues a trace from the text that Carried returned, perhaps in another process. The
// span is named verb and what.
func (t *Tracer) Continue(ctx context.Context, carried, verb, what string) (context.Context, *Span) {
	if t == nil || carried == "" {
		return ctx, nil
	}
	from := parse(ctx, carried)
	if !from.IsSampled() {
		return ctx, nil
	}
	return t.enter(trace.ContextWithRemoteSpanContext(ctx, from), trace.SpanKindConsumer, verb+" "+what)
}

// enter begins a segment.
func (t *Tracer) enter(ctx context.Context, kind trace.SpanKind, name string, options ...trace.SpanStartOption) (context.Context, *Span) {
	ctx, span := t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	place := &Place{t.tracer, span.SpanContext(), new(atomic.Int64)}
	place.left.Store(maxSpans - 1)
	s := new(stretch)
	s.at.Store(place)
	return context.WithValue(ctx, stretchKey{}, s), &Span{span, place.left}
}

// Begin begins a span below the span of ctx, if ctx is traced.
func Begin(ctx context.Context, name string) (context.Context, *Span) {
	return begin(ctx, trace.SpanKindInternal, name, "")
}

// Send begins a span for work that continues elsewhere, such as publishing an event. The span is
// named verb and what.
func Send(ctx context.Context, verb, what string) (context.Context, *Span) {
	return begin(ctx, trace.SpanKindProducer, verb, what)
}

func begin(ctx context.Context, kind trace.SpanKind, verb, what string) (context.Context, *Span) {
	p := placeOf(ctx)
	if p == nil || p.left.Add(-1) < 0 {
		return ctx, nil
	}
	if !trace.SpanContextFromContext(ctx).IsValid() { // ctx joined the trace (see Join)
		ctx = trace.ContextWithSpanContext(ctx, p.span)
	}
	if what != "" {
		verb += " " + what
	}
	ctx, span := p.tracer.Start(ctx, verb, trace.WithSpanKind(kind))
	return ctx, &Span{span: span}
}

func placeOf(ctx context.Context) *Place {
	if !on.Load() {
		return nil
	}
	s, _ := ctx.Value(stretchKey{}).(*stretch)
	if s == nil {
		return nil
	}
	return s.at.Load()
}

// Here returns the place of ctx, or nil if ctx is not traced.
func Here(ctx context.Context) *Place {
	p := placeOf(ctx)
	if p == nil {
		return nil
	}
	if now := trace.SpanContextFromContext(ctx); now.IsValid() {
		return &Place{p.tracer, now, p.left}
	}
	return p
}

// Joinable returns a context for long-lived work, such as a connection, that can join one trace
// after another.
func Joinable(ctx context.Context) context.Context {
	if !on.Load() {
		return ctx
	}
	return context.WithValue(ctx, stretchKey{}, new(stretch))
}

// Join makes a context from Joinable, and all contexts derived from it, continue at the place. A
// nil place leaves the current trace.
func Join(ctx context.Context, p *Place) {
	if !on.Load() {
		return
	}
	if s, _ := ctx.Value(stretchKey{}).(*stretch); s != nil {
		s.at.Store(p)
	}
}

// Carried returns the text from which Continue continues the trace in another process: a W3C
// traceparent. It returns "" if ctx is not traced or the segment has used all its spans.
func Carried(ctx context.Context) string {
	p := placeOf(ctx)
	if p == nil || p.left.Load() < 0 {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

const traceparent = "traceparent"

// parse reads a traceparent. It returns an invalid span context if text is not a traceparent.
func parse(ctx context.Context, text string) trace.SpanContext {
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(none, propagation.MapCarrier{traceparent: text}))
}

// ID returns the id of the trace of ctx, or "" if ctx is not traced.
func ID(ctx context.Context) string {
	if p := Here(ctx); p != nil {
		return p.span.TraceID().String()
	}
	return ""
}

// Int sets an attribute of the span.
func (s *Span) Int(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// Text sets an attribute of the span. The value must not be text of a user.
func (s *Span) Text(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Fail marks the span as failed with a stable code.
func (s *Span) Fail(code string) {
	if s != nil {
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String("error.type", code))
	}
}

// End ends the span. If err is not nil, the span has failed, with the code of the store or the
// reason of the context.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.Fail(codeOf(err))
	}
	if s.left != nil {
		if left := s.left.Load(); left < 0 {
			s.Int("tideline.spans_left_out", -left)
		}
	}
	s.span.End()
}
