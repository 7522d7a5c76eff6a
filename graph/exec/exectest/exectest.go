// Package exectest makes executable schemas for tests that execute only root fields, such as
// tests of admission or transports.
package exectest

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// Resolver returns the value of a root field, which is encoded as JSON. A resolver of a Subscription
// returns a <-chan any made by exec.Open.
type Resolver func(ctx context.Context, args map[string]any) (any, error)

type executable struct {
	graphql.ExecutableSchema // the methods that are not overridden are not called
	schema                   *ast.Schema
	fields                   map[string]Resolver
}

// New makes an executable schema from a text. fields has the resolvers of the root fields that
// the test executes, by "Type.field".
func New(t testing.TB, text string, fields map[string]Resolver) graphql.ExecutableSchema {
	t.Helper()
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "test", Input: text})
	require.NoError(t, err)
	return &executable{schema: schema, fields: fields}
}

// Schema implements graphql.ExecutableSchema.
func (e *executable) Schema() *ast.Schema { return e.schema }

// Exec implements graphql.ExecutableSchema as gqlgen's generated code does.
func (e *executable) Exec(ctx context.Context) graphql.ResponseHandler {
	op := graphql.GetOperationContext(ctx)
	switch op.Operation.Operation {
	case ast.Mutation:
		return e.once(op, "Mutation")
	case ast.Subscription:
		return e.stream(ctx, op)
	}
	return e.once(op, "Query")
}

func (e *executable) once(op *graphql.OperationContext, root string) graphql.ResponseHandler {
	done := false
	return func(ctx context.Context) *graphql.Response {
		if done {
			return nil
		}
		done = true
		var data bytes.Buffer
		for _, f := range graphql.CollectFields(op, op.Operation.SelectionSet, []string{root}) {
			value, ok := e.resolve(ctx, root, f)
			encoded, err := json.Marshal(value)
			if !ok && f.Definition.Type.NonNull || err != nil {
				return &graphql.Response{Data: []byte("null")}
			}
			add(&data, f.Alias, encoded)
		}
		data.WriteByte('}')
		return &graphql.Response{Data: data.Bytes()}
	}
}

func (e *executable) stream(ctx context.Context, op *graphql.OperationContext) graphql.ResponseHandler {
	f := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})[0]
	source, ok := e.resolve(ctx, "Subscription", f)
	if !ok {
		return nil
	}
	events := source.(<-chan any)
	return func(ctx context.Context) *graphql.Response {
		select {
		case <-ctx.Done():
			return nil
		case value, ok := <-events:
			if !ok {
				return nil
			}
			if err, failed := value.(error); failed {
				graphql.AddError(field(ctx, "Subscription", f), err)
				return &graphql.Response{Data: []byte("null")}
			}
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil
			}
			var data bytes.Buffer
			add(&data, f.Alias, encoded)
			data.WriteByte('}')
			return &graphql.Response{Data: data.Bytes()}
		}
	}
}

func (e *executable) resolve(ctx context.Context, root string, f graphql.CollectedField) (value any, ok bool) {
	ctx = field(ctx, root, f)
	defer func() {
		if panicked := recover(); panicked != nil {
			graphql.AddError(ctx, graphql.GetOperationContext(ctx).RecoverFunc(ctx, panicked))
			value, ok = nil, false
		}
	}()
	if f.Name == "__typename" {
		return root, true
	}
	op := graphql.GetOperationContext(ctx)
	value, err := op.ResolverMiddleware(ctx, func(ctx context.Context) (any, error) {
		return e.fields[root+"."+f.Name](ctx, f.ArgumentMap(op.Variables))
	})
	if err != nil {
		graphql.AddError(ctx, err)
		return nil, false
	}
	return value, true
}

func field(ctx context.Context, root string, f graphql.CollectedField) context.Context {
	return graphql.WithFieldContext(ctx, &graphql.FieldContext{Object: root, Field: f, IsMethod: true})
}

func add(data *bytes.Buffer, key string, value []byte) {
	if data.Len() == 0 {
		data.WriteByte('{')
	} else {
		data.WriteByte(',')
	}
	graphql.MarshalString(key).MarshalGQL(data)
	data.WriteByte(':')
	data.Write(value)
}
