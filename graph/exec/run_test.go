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
