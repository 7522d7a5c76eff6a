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

// Compiled writes the value of the only root field of a query, with coerced arguments, as gqlgen would. After
// an error gqlgen executes the query from the beginning, and its answer is sent instead.
type Compiled func(ctx context.Context, w *bytes.Buffer, arguments map[string]any) error

// compiled is a query that is answered without gqlgen.
type compiled struct {
	root  *ast.Field
	write Compiled
}

// compile offers the operations of a document to [Config].Compile. The document must have no directives, so
// that an operation always selects the same fields.
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

// buffers holds buffers for the answers of compiled queries.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// answer runs the query. After an error or a panic, the caller lets gqlgen execute the query.
func (c compiled) answer(ctx context.Context, e *Engine, o *Operation) (data json.RawMessage, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a compiled query panicked")
		}
	}()
	arguments, invalid := e.coerceArguments(c.root.Definition.Arguments, c.root.Arguments, o.context.Variables)
	if invalid != nil { // this does not happen: Prepare has coerced them before
		return nil, invalid
	}
	w := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(w)
	w.Reset()
	w.WriteString(`{"` + c.root.Alias + `":`)
	if err := o.inTurn(ctx, c.root, func() error { return c.write(ctx, w, arguments) }); err != nil {
		return nil, err
	}
	w.WriteByte('}')
	return bytes.Clone(w.Bytes()), nil
}
