package exec

import (
	"context"
	"errors"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Subscribe starts a subscription: one response for every value of its source, in order. The channel has no
// buffer: a slow receiver holds the source back, which has to have a policy for that. It is closed when the
// source ends or ctx is done; the receiver that stops early must cancel ctx. When the source fails to start,
// its error is returned and there is no channel.
//
// An error among the values that has a method Interrupted, without arguments or results, is the last one: its
// response is marked as interrupted.
func (e *Engine) Subscribe(ctx context.Context, o *Operation) (<-chan Response, gqlerror.List) {
	if o.Kind() != ast.Subscription {
		return nil, gqlerror.List{e.present(ctx, errors.New("only a subscription can be subscribed to"))}
	}
	p := o.rootPlan()
	ctx, cancel := context.WithCancel(ctx)
	source, err := e.open(ctx, &p.fields[0])
	if err != nil {
		cancel()
		shown := at(e.present(ctx, err), p.fields[0].pos)
		shown.Path = ast.Path{ast.PathName(p.fields[0].key)}
		return nil, gqlerror.List{shown}
	}
	responses := make(chan Response)
	go func() {
		defer close(responses)
		defer cancel()
		for {
			var event any
			var ok bool
			select {
			case <-ctx.Done():
				return
			case event, ok = <-source:
			}
			if !ok {
				return
			}
			response := e.event(ctx, o, p, event)
			_, response.Interrupted = event.(interface {
				error
				Interrupted()
			})
			select {
			case <-ctx.Done():
				return
			case responses <- response:
			}
			if response.Interrupted {
				return
			}
		}
	}()
	return responses, nil
}

func (e *Engine) open(ctx context.Context, f *planField) (source <-chan any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = e.recovered(ctx, p)
		}
	}()
	source, err = f.typ.stream(ctx, f.args)
	if err == nil && source == nil {
		err = errors.New("subscription source answered no channel")
	}
	return source, err
}

// event executes the subscription for one value of its root field.
func (e *Engine) event(ctx context.Context, o *Operation, p *plan, value any) Response {
	x := execution{engine: e, ctx: ctx, op: o}
	t := &table{plan: p, parents: []any{Root{}}, columns: make([]column, 1)}
	c := &t.columns[0]
	if err := x.fill(c, &p.fields[0], []any{value}); err != nil {
		*c = column{all: &failure{err: err}}
	}
	for _, below := range c.tables {
		x.resolve(below)
	}
	return e.respond(ctx, o, t)
}
