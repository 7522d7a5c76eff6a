package exec

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// operation returns the context that gqlgen needs to execute an operation.
func (e *Engine) operation(text string, doc *ast.QueryDocument, def *ast.OperationDefinition, variables map[string]any) *graphql.OperationContext {
	return &graphql.OperationContext{
		RawQuery: text, Variables: variables, OperationName: def.Name, Doc: doc, Operation: def,
		DisableIntrospection:   !e.cfg.Introspection,
		RecoverFunc:            e.cfg.Recover,
		ResolverMiddleware:     func(ctx context.Context, next graphql.Resolver) (any, error) { return next(ctx) },
		RootResolverMiddleware: func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler { return next(ctx) },
	}
}

// Execute runs a query or mutation. Every resolver gets the context.
func (e *Engine) Execute(ctx context.Context, o *Operation) Response {
	ctx = graphql.WithOperationContext(ctx, o.context)
	if o.Kind() == ast.Subscription {
		err := errors.New("a subscription was executed, not subscribed to")
		return Response{Data: json.RawMessage("null"), Errors: gqlerror.List{e.present(ctx, err)}}
	}
	if err := e.permit(ctx, o); err != nil {
		return Response{Errors: gqlerror.List{err}}
	}
	if o.compiled.write != nil {
		if data, err := o.compiled.answer(ctx, e, o); err == nil {
			return Response{Data: data}
		}
	}
	return *e.answer(e.cfg.Begin(ctx), e.cfg.Schema.Exec(ctx))
}

// answer completes an execution that has begun: of a query or mutation, or of one event of a subscription.
func (e *Engine) answer(ctx context.Context, next graphql.ResponseHandler) *Response {
	ctx = graphql.WithResponseContext(ctx, e.presentField, e.cfg.Recover)
	answered := next(ctx)
	if answered == nil { // gqlgen returns nil if the client has left
		return &Response{Data: json.RawMessage("null")}
	}
	errs := graphql.GetErrors(ctx)
	return &Response{Data: answered.Data, Errors: errs[:min(len(errs), e.cfg.Limits.Errors)]}
}

// presentField is present for the error of a field that gqlgen executes.
func (e *Engine) presentField(ctx context.Context, err error) *gqlerror.Error {
	shown := e.present(ctx, err)
	shown.Path = graphql.GetPath(ctx)
	if f := graphql.GetFieldContext(ctx); f != nil && f.Field.Field != nil {
		shown = at(shown, f.Field.Position)
	}
	return shown
}

// permit returns the error to present if Permit refuses the operation.
func (e *Engine) permit(ctx context.Context, o *Operation) *gqlerror.Error {
	if e.cfg.Permit == nil {
		return nil
	}
	err := e.cfg.Permit(ctx, o)
	if err == nil {
		return nil
	}
	return e.present(ctx, err)
}
