package exec

import (
	"context"
	"errors"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Source provides the events of a subscription, one for each response. It lives as long as the context that
// opened it. Its methods are not called concurrently. A source that is also a [Sharer] sends events that
// several subscriptions get.
type Source[T any] interface {
	// Next returns the next event. If there is none, ok is false, and the source calls wake when there is
	// one. Next may read from stores, but must not wait for an event.
	Next(ctx context.Context) (event T, ok bool)
	// Confirm reports whether the finished response to the last event of Next may still be sent. alone says
	// that a value was read for this subscription alone, as a resolver has reported with [Own] or [Read].
	Confirm(ctx context.Context, event T, alone bool) bool
	// Ended reports whether Next will return no further event.
	Ended() bool
	// Err returns an error if the source has ended too early and another subscription may continue.
	Err() error
}

// Sharer is a [Source] of events whose response is made once for several subscriptions.
type Sharer[T any] interface {
	// Shared returns the event that Next would return next, if it is [Common] and Next would neither read nor
	// wait. It does not take the event.
	Shared() (event T, ok bool)
	// TakeShared takes the event that Shared has just returned, since its response is sent now. If the
	// response may no longer be sent, it returns false, and Next decides. Confirm is not called.
	TakeShared(event T) bool
	// AppendOwn is [Common].AppendOwn for the event that TakeShared has just taken. That event is the
	// same value for all subscriptions.
	AppendOwn(b []byte, event T) []byte
	// SetTell makes the source call tell instead of wake for an event that Shared may return. If tell returns
	// a channel, tell is called again when the channel is closed.
	SetTell(tell func() (wait <-chan struct{}))
}

// Subscription is a running operation with any number of responses. It has no goroutine: it wakes its reader,
// which calls Next. Its methods must not be called concurrently.
type Subscription struct {
	engine *Engine
	op     *Operation
	shape  shape
	plain  any // the key of the template without flags
	source source

	charge  func(cost int) gqlerror.List
	refused gqlerror.List

	// Set only while the subscription starts.
	ctx  context.Context
	wake func()
}

// Subscribe starts a subscription that lasts until its source ends or ctx is done. It calls wake whenever
// there may be a response or the end, possibly before Subscribe returns. wake must return at once and must
// not call the subscription. If the source cannot be opened, Subscribe returns errors and no subscription.
func (e *Engine) Subscribe(ctx context.Context, o *Operation, wake func()) (*Subscription, gqlerror.List) {
	if o.Kind() != ast.Subscription {
		return nil, gqlerror.List{e.present(ctx, errors.New("only a subscription can be subscribed to"))}
	}
	if err := e.permit(ctx, o); err != nil {
		return nil, gqlerror.List{err}
	}
	s := &Subscription{engine: e, op: o, shape: o.shape(), ctx: ctx, wake: wake}
	s.plain = flagged{s.shape, false}
	ctx = context.WithValue(graphql.WithOperationContext(ctx, o.context), openingKey{}, s)
	ctx = graphql.WithResponseContext(ctx, e.presentField, e.cfg.Recover)
	e.cfg.Schema.Exec(ctx)
	s.ctx, s.wake = nil, nil
	// A new context, since the old one would keep all that gqlgen stored at the start for
	// the subscription's lifetime.
	o.context = e.operation(o.context.RawQuery, o.context.Doc, o.def, o.context.Variables)
	o.TakeTurns(o.turn)
	errs := graphql.GetErrors(ctx)
	if len(errs) == 0 && s.source == nil {
		errs = gqlerror.List{e.present(ctx, errors.New("a subscription has no source"))}
	}
	if len(errs) > 0 {
		return nil, errs[:min(len(errs), e.cfg.Limits.Errors)]
	}
	return s, nil
}

// SetCharge sets a function that is called before Next makes a response, with the cost of the operation. If
// it returns errors, the subscription ends and Refused returns them. The event is lost to this
// subscription, but another subscription that resumes receives it. Responses of AppendShared are free,
// since they are made once for all subscriptions.
func (s *Subscription) SetCharge(charge func(cost int) gqlerror.List) {
	s.charge = charge
}

// Refused returns the errors with which SetCharge's function ended the subscription, or nil.
func (s *Subscription) Refused() gqlerror.List { return s.refused }

// Next returns the next response. ok is false if there is none now. ctx must be the subscription's context.
func (s *Subscription) Next(ctx context.Context) (response Response, ok bool) {
	for {
		if s.refused != nil {
			return response, false
		}
		event, ok := s.source.Next(ctx)
		if !ok || ctx.Err() != nil {
			return response, false
		}
		if s.charge != nil {
			if s.refused = s.charge(s.op.Cost()); s.refused != nil {
				return response, false
			}
		}
		response, alone := s.respond(ctx, event)
		if s.source.Confirm(ctx, event, alone) {
			return response, true
		}
	}
}

// common returns the event if it may be executed once for several subscriptions. Fields with a price are read
// for each subscriber, in the turn of its client.
func (s *Subscription) common(event any) (common Common, ok bool) {
	common, ok = event.(Common)
	return common, ok && len(s.op.prices) == 0
}

func (s *Subscription) respond(ctx context.Context, event any) (response Response, alone bool) {
	if common, shared := s.common(event); shared {
		if data := s.fromTemplate(ctx, common); data != nil {
			return Response{Data: data}, false
		}
	}
	t := &template{alone: true}
	response = s.execute(context.WithValue(ctx, templateKey{}, t), event)
	return response, t.own.Load()
}

// SetTell sets a function that is called instead of wake when there may be a response for AppendShared. It
// must not wait. If it returns a channel, it is called again when the channel is closed.
func (s *Subscription) SetTell(tell func() (wait <-chan struct{})) { s.source.SetTell(tell) }

// AppendShared appends the next response to b, as [Response.AppendJSON] does, if several subscriptions
// get it and nothing must be read or waited for. If wait is not nil, another goroutine is making the
// response; wait is closed when it is done. If ok is false and wait is nil, the caller must call Next.
// ctx must be the subscription's context.
func (s *Subscription) AppendShared(ctx context.Context, b []byte) (appended []byte, ok bool, wait <-chan struct{}) {
	event, ok := s.source.Shared()
	if !ok || s.refused != nil {
		return b, false, nil
	}
	common, ok := s.common(event)
	if !ok {
		return b, false, nil
	}
	found, wait := common.Soon(s.plain, func() any { return s.newTemplate(ctx, common, false) })
	if wait != nil {
		return b, false, wait
	}
	t := found.(*template)
	if t == nil || t.flag != nil || t.count != nil || !s.source.TakeShared(event) {
		return b, false, nil
	}
	b = append(b, `{"data":`...)
	return append(t.fill(b, func(b []byte) []byte { return s.source.AppendOwn(b, event) }, ""), '}'), true, nil
}

// Ended reports whether the subscription has no more responses.
func (s *Subscription) Ended() bool { return s.refused != nil || s.source.Ended() }

// Interrupted reports whether the subscription has ended too early, as reported by [Source].Err.
func (s *Subscription) Interrupted() bool { return s.source.Err() != nil }

type (
	openingKey struct{}
	eventKey   struct{}
)

// execute executes the operation for one event, as if the source had only this event.
func (s *Subscription) execute(ctx context.Context, event any) Response {
	ctx = s.engine.cfg.Begin(context.WithValue(graphql.WithOperationContext(ctx, s.op.context), eventKey{}, event))
	starting := graphql.WithResponseContext(ctx, s.engine.presentField, s.engine.cfg.Recover)
	return *s.engine.answer(ctx, s.engine.cfg.Schema.Exec(starting))
}

// Open implements the resolver of a subscription's field. gqlgen requires such a resolver to return a
// channel. When the subscription starts, Open opens its source with the subscription's context. When an event
// is executed, the channel contains that event.
func Open[T any](ctx context.Context, open func(ctx context.Context, wake func()) (Source[T], error)) (<-chan T, error) {
	one := make(chan T, 1)
	if s, opening := ctx.Value(openingKey{}).(*Subscription); opening && s.source == nil {
		source, err := open(s.ctx, s.wake) //nolint:contextcheck // gqlgen's context would keep all that it knows of the start
		if err == nil {
			sharer, _ := source.(Sharer[T])
			s.source = untyped[T]{source, sharer}
		}
		return one, err
	}
	event, ok := Executed[T](ctx)
	if !ok {
		return nil, errors.New("a subscription was executed without an event")
	}
	one <- event
	close(one)
	return one, nil
}

// Executed returns the event that is being executed. ok is false in a resolver that is called
// when the subscription starts.
func Executed[T any](ctx context.Context) (event T, ok bool) {
	event, ok = ctx.Value(eventKey{}).(T)
	return event, ok
}

// source is a Source and a Sharer whose events have any type.
type source interface {
	Source[any]
	Sharer[any]
}

// untyped makes a source of a Source, and of the same value as a Sharer, which is nil if it is none.
type untyped[T any] struct {
	Source[T]
	sharer Sharer[T]
}

func (u untyped[T]) Next(ctx context.Context) (any, bool) { return u.Source.Next(ctx) }

func (u untyped[T]) Confirm(ctx context.Context, event any, alone bool) bool {
	return u.Source.Confirm(ctx, event.(T), alone)
}

func (u untyped[T]) Shared() (event any, ok bool) {
	if u.sharer == nil {
		return nil, false
	}
	return u.sharer.Shared()
}

func (u untyped[T]) TakeShared(event any) bool { return u.sharer.TakeShared(event.(T)) }

func (u untyped[T]) AppendOwn(b []byte, event any) []byte { return u.sharer.AppendOwn(b, event.(T)) }

func (u untyped[T]) SetTell(tell func() (wait <-chan struct{})) {
	if u.sharer != nil {
		u.sharer.SetTell(tell)
	}
}
