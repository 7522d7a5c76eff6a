// Package trace follows some of the operations on their way through all processes, as OpenTelemetry does.
//
// A journey is one trace: the operation of a client, its statements in SQL, its job, the worker that does it, what that
// publishes, and the sockets that are written to. The server that takes an operation decides whether it is sampled. What
// belongs to a journey carries it along: contexts within a process, the payload of a job and the event on pub/sub between
// processes.
//
// What holds:
//
//   - What is traced waits for nothing: spans go to the collector behind it, in bounded batches, and are dropped when
//     that is away.
//   - A stretch of a journey, which is what one process does for one operation, job or message, has at most maxSpans
//     spans.
//   - A span has no text of a user, no argument of a statement, and no key of Redis.
//   - A client decides nothing: a trace that it brings is linked, whether it is sampled or not.
//   - Without a Tracer nothing costs an allocation.
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

// maxSpans bounds the spans of a stretch. A fan-out to a million followers would have some thousands.
const maxSpans = 1000

// on says that this process has, or had, a Tracer. Until then nobody looks into contexts.
var on atomic.Bool

type (
	stretchKey struct{} // of a *stretch
	callerKey  struct{} // of the traceparent of a client, a string
)

// stretch is where the spans of a context belong.
type stretch struct{ at atomic.Pointer[Place] }

// Place is a place in a journey, at which others may go on. It is nil outside of journeys.
type Place struct {
	tracer trace.Tracer
	span   trace.SpanContext
	left   *atomic.Int64 // how many spans the stretch may still have
}

// Span is something that takes time on a journey. A nil Span is that of something that is not traced: its methods do
// nothing.
type Span struct {
	span trace.Span
	left *atomic.Int64 // of the first span of a stretch
}

// Operation begins the journey of a client's operation, which was read at begun, if it is drawn. The name is the client's,
// and the fields at its root are those of the schema.
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

// WithCaller returns a context that knows of the trace of the client which made the request. Operation links it.
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

// Continue goes on with what Carried returned in another process, or before. The span is named by what is done to what.
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

// enter begins a stretch.
func (t *Tracer) enter(ctx context.Context, kind trace.SpanKind, name string, options ...trace.SpanStartOption) (context.Context, *Span) {
	ctx, span := t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
	place := &Place{t.tracer, span.SpanContext(), new(atomic.Int64)}
	place.left.Store(maxSpans - 1)
	s := new(stretch)
	s.at.Store(place)
	return context.WithValue(ctx, stretchKey{}, s), &Span{span, place.left}
}

// Begin begins a span below that of ctx, if ctx is on a journey.
func Begin(ctx context.Context, name string) (context.Context, *Span) {
	return begin(ctx, trace.SpanKindInternal, name, "")
}

// Send is Begin for what is to be done elsewhere: it is named by the verb and by what is sent.
func Send(ctx context.Context, verb, what string) (context.Context, *Span) {
	return begin(ctx, trace.SpanKindProducer, verb, what)
}

func begin(ctx context.Context, kind trace.SpanKind, verb, what string) (context.Context, *Span) {
	p := placeOf(ctx)
	if p == nil || p.left.Add(-1) < 0 {
		return ctx, nil
	}
	if !trace.SpanContextFromContext(ctx).IsValid() { // it has joined
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

// Here returns the place of ctx, nil if it is on no journey.
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

// Joinable returns a context that may join journeys, one after the other, and leave them: that of something that lasts
// longer than any of them.
func Joinable(ctx context.Context) context.Context {
	if !on.Load() {
		return ctx
	}
	return context.WithValue(ctx, stretchKey{}, new(stretch))
}

// Join has a context of Joinable, and those made of it, go on at the place; nil: it leaves the journey that it was on.
func Join(ctx context.Context, p *Place) {
	if !on.Load() {
		return
	}
	if s, _ := ctx.Value(stretchKey{}).(*stretch); s != nil {
		s.at.Store(p)
	}
}

// Carried returns the text with which Continue goes on in another process: a traceparent, as the W3C has it. It is
// "" if ctx is on none, or if the stretch has all its spans.
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

// parse reads a traceparent. The result of a text that is none is not valid.
func parse(ctx context.Context, text string) trace.SpanContext {
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(none, propagation.MapCarrier{traceparent: text}))
}

// ID returns the id of the trace that ctx belongs to, "" if it is on no journey.
func ID(ctx context.Context) string {
	if p := Here(ctx); p != nil {
		return p.span.TraceID().String()
	}
	return ""
}

// Int says something of the span.
func (s *Span) Int(key string, value int64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, value))
	}
}

// Text says something of the span. It must be no text of a user.
func (s *Span) Text(key, value string) {
	if s != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Fail says that the work of the span has failed, by a stable code.
func (s *Span) Fail(code string) {
	if s != nil {
		s.span.SetStatus(codes.Error, code)
		s.span.SetAttributes(attribute.String("error.type", code))
	}
}

// End ends the span. An error that is not nil has failed it, by the code of the store or the reason of the context.
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
