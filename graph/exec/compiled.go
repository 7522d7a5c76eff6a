package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// Compiled writes the value of the one field at the root of a query, for the coerced arguments, as gqlgen
// would. After an error gqlgen executes the query from the beginning: what it answers then is the answer.
type Compiled func(ctx context.Context, w *bytes.Buffer, arguments map[string]any) error

// compiled is a query that need not be executed field by field.
type compiled struct {
	root  *ast.Field
	write Compiled
}

// compile offers the operations of a document without directives to [Config].Compile: what they select is the
// same whatever their variables.
func (e *Engine) compile(doc *document) map[*ast.OperationDefinition]compiled {
	if e.cfg.Compile == nil {
		return nil
	}
	all := map[*ast.OperationDefinition]compiled{}
	for _, def := range doc.ast.Operations {
		op := e.operation(doc.text, doc.ast, def, nil)
		roots := graphql.CollectFields(op, def.SelectionSet, []string{"Query"})
		if def.Operation != ast.Query || len(roots) != 1 {
			continue
		}
		if write := e.cfg.Compile(op, roots[0]); write != nil {
			all[def] = compiled{roots[0].Field, write}
		}
	}
	return all
}

// buffers are what compiled queries are written into.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// answer runs the query; it fails, and so does its panic, when gqlgen is to.
func (c compiled) answer(ctx context.Context, e *Engine, variables map[string]any) (data json.RawMessage, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a compiled query panicked")
		}
	}()
	arguments, invalid := e.coerceArguments(c.root.Definition.Arguments, c.root.Arguments, variables)
	if invalid != nil { // Prepare has coerced them before: this does not happen
		return nil, invalid
	}
	w := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(w)
	w.Reset()
	w.WriteString(`{"` + c.root.Alias + `":`)
	if err := c.write(ctx, w, arguments); err != nil {
		return nil, err
	}
	w.WriteByte('}')
	return bytes.Clone(w.Bytes()), nil
}
