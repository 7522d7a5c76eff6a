package exec

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/99designs/gqlgen/graphql"
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

// A field takes a turn with its price if it has one with its arguments.
func TestFieldsWithAPriceTakeTurns(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Query.old":  func(context.Context, map[string]any) (any, error) { return "old", nil },
		"Query.echo": func(context.Context, map[string]any) (any, error) { return "echo", nil },
	}, func(c *Config) {
		c.Prices = map[string]func(map[string]any) int{
			"Query.old":  func(map[string]any) int { return 0 },
			"Query.echo": func(arguments map[string]any) int { return arguments["int"].(int) },
		}
		c.Compile = func(_ *graphql.OperationContext, root graphql.CollectedField) Compiled {
			if root.Alias != "compiled" {
				return nil
			}
			return func(_ context.Context, w *bytes.Buffer, _ map[string]any) error {
				w.WriteString(`"echo"`)
				return nil
			}
		}
	})
	for query, want := range map[string]int{
		`{ old }`:                                0,
		`{ echo(int: 0) }`:                       0,
		`{ echo(int: 500) }`:                     500,
		`{ compiled: echo(int: 0) }`:             0,
		`{ compiled: echo(int: 500) }`:           500,
		`query($n: Int = 600) { echo(int: $n) }`: 600,
		`{ a: echo(int: 500) b: echo(int: 0) old ...F ...F } fragment F on Query { c: echo(int: 1) d: echo(int: 0) }`: 501,
		`{ echo(int: 500) echo(int: 500) }`:                                          500,
		`{ a: echo(int: 500) @skip(if: true) b: echo(int: 500) @include(if: true) }`: 500,
	} {
		op, errs := e.Prepare(t.Context(), Request{Query: query})
		require.Empty(t, errs, query)
		alone := text(t, e.Execute(t.Context(), op))
		price := 0
		op.TakeTurns(func(_ context.Context, p int, read func()) bool {
			price += p
			read()
			return true
		})
		require.Equal(t, alone, text(t, e.Execute(t.Context(), op)), query)
		require.Equal(t, want, price, query)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	op, errs := e.Prepare(ctx, Request{Query: `{ echo(int: 500) old }`})
	require.Empty(t, errs)
	op.TakeTurns(func(context.Context, int, func()) bool { return false })
	require.Equal(t, `{"errors":[{"message":"too late","path":["echo"],"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],"data":{"echo":null,"old":"old"}}`, text(t, e.Execute(ctx, op)))
}
