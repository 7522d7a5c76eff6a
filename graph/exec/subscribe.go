package exec

import (
	"context"
	"errors"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Source has the events of a subscription, one for each response. It lasts as long as the context that opened it.
// One goroutine at a time calls it.
type Source[T any] interface {
	// Next returns the next event. When there is none now, ok is false, and the source calls wake when there is
	// one. Next may read from stores, but must not wait for an event.
	Next(ctx context.Context) (event T, ok bool)
	// Shared returns the event that Next returns next, if it is a [Common] one and Next need not read or wait. It
	// takes nothing.
	Shared() (event T, ok bool)
	// TakeShared takes the event that Shared has just returned: its response is sent now. If it may be sent no more,
	// TakeShared returns false, and Next is to decide. Confirm is not asked.
	TakeShared(event T) bool
	// AppendOwn is that of [Common], for the event that TakeShared has just taken: it is the same one for all.
	AppendOwn(b []byte, event T) []byte
	// TellBy has tell called in place of wake for an event that Shared may return. If tell returns a channel, it is
	// called again when that is closed.
	TellBy(tell func() (wait <-chan struct{}))
	// Confirm reports whether the response to the last event of Next, which is made by now, may still be sent. Alone
	// says that something was read for this subscription alone, by a resolver that said so: see [Own] and [Read].
	Confirm(ctx context.Context, event T, alone bool) bool
	// Ended reports whether the source has no more events.
	Ended() bool
	// Err is not nil when the source has ended too early: another subscription may bring the rest.
	Err() error
}

// Subscription is an operation under way that has any number of responses. It costs no goroutine: it wakes its
// reader, which calls Next. One goroutine at a time may call its methods.
type Subscription struct {
	engine *Engine
	op     *Operation
	shape  shape
	plain  any // the key of the template without flags
	source Source[any]

	charge  func(cost int) gqlerror.List
	refused gqlerror.List

	// Only while it starts.
	ctx  context.Context
	wake func()
}

// Subscribe starts a subscription that lasts until its source ends or ctx is done. The subscription calls wake
// whenever there may be a response, or the end, also before Subscribe has returned. wake must return at once and
// must not call the subscription. When the source cannot be opened, Subscribe returns an error and no
// subscription.
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
	// A new context: the old one keeps all that gqlgen stored at the start as long as the subscription lasts.
	o.context = e.operation(o.context.RawQuery, o.context.Doc, o.def, o.context.Variables)
	errs := graphql.GetErrors(ctx)
	if len(errs) == 0 && s.source == nil {
		errs = gqlerror.List{e.present(ctx, errors.New("a subscription has no source"))}
	}
	if len(errs) > 0 {
		return nil, errs[:min(len(errs), e.cfg.Limits.Errors)]
	}
	return s, nil
}

// ChargeBy has charge asked before each response that Next makes, with the cost of the operation. If it returns
// errors, the subscription has ended, and Refused returns them: the event is lost to this subscription, and another one
// brings it. What AppendShared makes costs nothing: it is made once for all.
func (s *Subscription) ChargeBy(charge func(cost int) gqlerror.List) {
	s.charge = charge
}

// Refused returns why the subscription was ended by ChargeBy, nil if it was not.
func (s *Subscription) Refused() gqlerror.List { return s.refused }

// Next returns the next response; ok is false when there is none now. The context is the subscription's.
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

func (s *Subscription) respond(ctx context.Context, event any) (response Response, alone bool) {
	if common, shared := event.(Common); shared {
		if data := s.fromTemplate(ctx, common); data != nil {
			return Response{Data: data}, false
		}
	}
	t := &template{alone: true}
	response = s.execute(context.WithValue(ctx, templateKey{}, t), event)
	return response, t.own.Load()
}

// TellBy has tell called in place of wake when there may be a response for AppendShared. It must not wait. If it
// returns a channel, it is called again when that is closed.
func (s *Subscription) TellBy(tell func() (wait <-chan struct{})) { s.source.TellBy(tell) }

// AppendShared appends the next response to b, as [Response.AppendJSON] does, if many subscriptions get it and nothing
// has to be read or waited for. When wait is not nil, the response is made elsewhere until that is closed. Else, when
// nothing was appended, Next has to be asked. The context is the subscription's.
func (s *Subscription) AppendShared(ctx context.Context, b []byte) (appended []byte, ok bool, wait <-chan struct{}) {
	event, ok := s.source.Shared()
	if !ok || s.refused != nil {
		return b, false, nil
	}
	common, ok := event.(Common)
	if !ok {
		return b, false, nil
	}
	found, ok := common.Made(s.plain)
	if !ok {
		if found, wait = common.Soon(s.plain, func() any { return s.newTemplate(ctx, common, false) }); wait != nil {
			return b, false, wait
		}
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

// Interrupted reports whether the subscription has ended too early, as [Source].Err says.
func (s *Subscription) Interrupted() bool { return s.source.Err() != nil }

type (
	openingKey struct{}
	eventKey   struct{}
)

// execute has gqlgen execute the operation for one event, as if its source had this event alone.
func (s *Subscription) execute(ctx context.Context, event any) Response {
	ctx = s.engine.cfg.Begin(context.WithValue(graphql.WithOperationContext(ctx, s.op.context), eventKey{}, event))
	starting := graphql.WithResponseContext(ctx, s.engine.presentField, s.engine.cfg.Recover)
	return *s.engine.answer(ctx, s.engine.cfg.Schema.Exec(starting))
}

// Open serves the resolver of a subscription's field. gqlgen wants such a resolver to return a channel. When the
// subscription starts, Open opens its source with the context of the subscription; when an event is executed, the
// channel has that event.
func Open[T any](ctx context.Context, open func(ctx context.Context, wake func()) (Source[T], error)) (<-chan T, error) {
	one := make(chan T, 1)
	if s, opening := ctx.Value(openingKey{}).(*Subscription); opening && s.source == nil {
		source, err := open(s.ctx, s.wake) //nolint:contextcheck // gqlgen's context would keep all that it knows of the start
		if err == nil {
			s.source = untyped[T]{source}
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

// Executed returns the event that is executed; ok is false in a resolver that is called when a subscription starts.
func Executed[T any](ctx context.Context) (event T, ok bool) {
	event, ok = ctx.Value(eventKey{}).(T)
	return event, ok
}

type untyped[T any] struct{ Source[T] }

func (u untyped[T]) Next(ctx context.Context) (any, bool) { return u.Source.Next(ctx) }

func (u untyped[T]) Shared() (any, bool) { return u.Source.Shared() }

func (u untyped[T]) TakeShared(event any) bool { return u.Source.TakeShared(event.(T)) }

func (u untyped[T]) AppendOwn(b []byte, event any) []byte { return u.Source.AppendOwn(b, event.(T)) }

func (u untyped[T]) Confirm(ctx context.Context, event any, alone bool) bool {
	return u.Source.Confirm(ctx, event.(T), alone)
}
