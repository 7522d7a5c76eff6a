package exec

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec/exectest"
)

func TestErrorsOfResolvers(t *testing.T) {
	refusal := &gqlerror.Error{Message: "not yours", Extensions: map[string]any{"code": "FORBIDDEN"}}
	e := newEngine(t, map[string]exectest.Resolver{
		"Query.old":    func(context.Context, map[string]any) (any, error) { return nil, errors.New("lost") },
		"Query.panics": func(context.Context, map[string]any) (any, error) { panic("oh") },
		"Query.must":   func(context.Context, map[string]any) (any, error) { return nil, refusal },
	}, func(c *Config) { c.Limits.Errors = 2 })
	for query, want := range map[string]string{
		`{ a: old }`:     `{"errors":[{"message":"lost","path":["a"],"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],"data":{"a":null}}`,
		`{ panics }`:     `{"errors":[{"message":"panic: oh","path":["panics"],"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],"data":{"panics":null}}`,
		`{ must(n: 1) }`: `{"errors":[{"message":"not yours","path":["must"],"locations":[{"line":1,"column":3}],"extensions":{"code":"FORBIDDEN"}}],"data":null}`,
	} {
		op, errs := e.Prepare(t.Context(), Request{Query: query})
		require.Empty(t, errs)
		require.Equal(t, want, text(t, e.Execute(t.Context(), op)))
	}
	op, errs := e.Prepare(t.Context(), Request{Query: `{ a: old b: old c: old d: __typename }`})
	require.Empty(t, errs)
	require.Equal(t, []string{"old", "old", "old", "__typename"}, op.RootFields())
	require.Len(t, e.Execute(t.Context(), op).Errors, 2)
}

func TestEachExecutionBegins(t *testing.T) {
	type key struct{}
	begun := 0
	e := newEngine(t, map[string]exectest.Resolver{
		"Query.old": func(ctx context.Context, _ map[string]any) (any, error) { return ctx.Value(key{}), nil },
	}, func(c *Config) {
		c.Begin = func(ctx context.Context) context.Context { begun++; return context.WithValue(ctx, key{}, begun) }
	})
	op, errs := e.Prepare(t.Context(), Request{Query: `{ old }`})
	require.Empty(t, errs)
	require.Equal(t, `{"data":{"old":1}}`, text(t, e.Execute(t.Context(), op)))
	require.Equal(t, `{"data":{"old":2}}`, text(t, e.Execute(t.Context(), op)))
}

func numbers(values ...any) exectest.Resolver {
	return func(context.Context, map[string]any) (any, error) {
		events := make(chan any, len(values))
		for _, v := range values {
			events <- v
		}
		close(events)
		return (<-chan any)(events), nil
	}
}

func TestSubscription(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{"Subscription.numbers": numbers(1, errors.New("lost"), 2)})
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { n: numbers }`})
	require.Empty(t, errs)
	require.Equal(t, "subscription", string(op.Kind()))
	responses, errs := e.Subscribe(t.Context(), op)
	require.Empty(t, errs)
	var got []string
	for r := range responses {
		got = append(got, text(t, r))
	}
	require.Equal(t, []string{
		`{"data":{"n":1}}`,
		`{"errors":[{"message":"lost","path":["n"],"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],"data":null}`,
		`{"data":{"n":2}}`,
	}, got)
	require.Equal(t, "null", string(e.Execute(t.Context(), op).Data), "a subscription is not executed")
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Subscription.numbers": func(context.Context, map[string]any) (any, error) { return make(<-chan any), nil },
	})
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { numbers }`})
	require.Empty(t, errs)
	ctx, cancel := context.WithCancel(t.Context())
	responses, errs := e.Subscribe(ctx, op)
	require.Empty(t, errs)
	cancel()
	_, more := <-responses
	require.False(t, more)
}

func TestInterruptedSubscriptionSaysSo(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Subscription.numbers": func(ctx context.Context, args map[string]any) (any, error) {
			Interrupt(ctx)
			return numbers(1)(ctx, args)
		},
	})
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { numbers }`})
	require.Empty(t, errs)
	responses, errs := e.Subscribe(t.Context(), op)
	require.Empty(t, errs)
	require.Equal(t, `{"data":{"numbers":1}}`, text(t, <-responses))
	require.True(t, (<-responses).Interrupted)
	_, more := <-responses
	require.False(t, more)
}

func TestSubscriptionThatDoesNotStart(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Subscription.numbers": func(context.Context, map[string]any) (any, error) { panic("no numbers") },
		"Subscription.broken":  func(context.Context, map[string]any) (any, error) { return nil, errors.New("broken") },
		"Query.old":            func(context.Context, map[string]any) (any, error) { return nil, nil },
	})
	for query, want := range map[string]string{
		`subscription { numbers }`: "panic: no numbers", `subscription { broken }`: "broken",
		`{ old }`: "only a subscription can be subscribed to",
	} {
		op, errs := e.Prepare(t.Context(), Request{Query: query})
		require.Empty(t, errs)
		responses, errs := e.Subscribe(t.Context(), op)
		require.Nil(t, responses)
		require.Len(t, errs, 1)
		require.Equal(t, want, errs[0].Message)
		require.Equal(t, CodeInternal, errs[0].Extensions["code"])
	}
}
