package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// operation is what gqlgen has to know of an operation.
func (e *Engine) operation(text string, doc *document, def *ast.OperationDefinition, variables map[string]any) *graphql.OperationContext {
	return &graphql.OperationContext{
		RawQuery: text, Variables: variables, OperationName: def.Name, Doc: doc.ast, Operation: def,
		DisableIntrospection:   !e.cfg.Introspection,
		RecoverFunc:            e.cfg.Recover,
		ResolverMiddleware:     func(ctx context.Context, next graphql.Resolver) (any, error) { return next(ctx) },
		RootResolverMiddleware: func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler { return next(ctx) },
	}
}

// Execute runs a query or mutation. The context is passed to every resolver.
func (e *Engine) Execute(ctx context.Context, o *Operation) Response {
	ctx = graphql.WithOperationContext(ctx, o.context)
	if o.Kind() == ast.Subscription {
		err := errors.New("a subscription was executed, not subscribed to")
		return Response{Data: json.RawMessage("null"), Errors: gqlerror.List{e.present(ctx, err)}}
	}
	return *e.answer(ctx, e.cfg.Schema.Exec(ctx))
}

// answer is one execution: of a query or mutation, or of the next event of a subscription, nil when there is
// none any more.
func (e *Engine) answer(ctx context.Context, next graphql.ResponseHandler) *Response {
	ctx = graphql.WithResponseContext(e.cfg.Begin(ctx), e.presentField, e.cfg.Recover)
	answered := next(ctx)
	if answered == nil {
		return nil
	}
	errs := graphql.GetErrors(ctx)
	return &Response{Data: answered.Data, Errors: errs[:min(len(errs), e.cfg.Limits.Errors)]}
}

// presentField is present for an error that gqlgen met at a field.
func (e *Engine) presentField(ctx context.Context, err error) *gqlerror.Error {
	shown := e.present(ctx, err)
	shown.Path = graphql.GetPath(ctx)
	if f := graphql.GetFieldContext(ctx); f != nil && f.Field.Field != nil {
		shown = at(shown, f.Field.Position)
	}
	return shown
}

type interruptionKey struct{}

// Interrupt says, from within a subscription's source, that it is about to end although there is more.
func Interrupt(ctx context.Context) {
	if interrupted, ok := ctx.Value(interruptionKey{}).(*atomic.Bool); ok {
		interrupted.Store(true)
	}
}

// Subscribe starts a subscription: one response for every value of its source, in order. The channel has no
// buffer: a slow receiver holds the source back, which has to have a policy for that. It is closed when the
// source ends or ctx is done; the receiver that stops early must cancel ctx. When the source fails to start,
// its error is returned and there is no channel.
//
// The last response of a source that called [Interrupt] is marked as interrupted, and has nothing else.
func (e *Engine) Subscribe(ctx context.Context, o *Operation) (<-chan Response, gqlerror.List) {
	if o.Kind() != ast.Subscription {
		return nil, gqlerror.List{e.present(ctx, errors.New("only a subscription can be subscribed to"))}
	}
	interrupted := new(atomic.Bool)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, interruptionKey{}, interrupted))
	ctx = graphql.WithOperationContext(ctx, o.context)
	starting := graphql.WithResponseContext(ctx, e.presentField, e.cfg.Recover)
	next := e.cfg.Schema.Exec(starting)
	if errs := graphql.GetErrors(starting); len(errs) > 0 {
		cancel()
		return nil, errs[:min(len(errs), e.cfg.Limits.Errors)]
	}
	responses := make(chan Response)
	go func() {
		defer close(responses)
		defer cancel()
		for {
			response := e.answer(ctx, next)
			switch {
			case response != nil:
				response.Data = bytes.Clone(response.Data) // gqlgen writes the next over it
			case interrupted.Load():
				response = &Response{Interrupted: true}
			default:
				return
			}
			select {
			case <-ctx.Done():
				return
			case responses <- *response:
			}
			if response.Interrupted {
				return
			}
		}
	}()
	return responses, nil
}
