package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Execution has two halves. First the resolvers run, breadth first below every root field, and leave a tree of
// tables: a table holds the objects of one type at one place of the operation, a column per field what it
// resolved to. Then the tree is written as JSON, depth first; only there are errors and nulls given their path.

// table holds all objects of one type at one place of the operation.
type table struct {
	plan    *plan
	parents []any
	columns []column // as plan.fields
}

// column is one field of all the objects of a table. Properties that are leaves have none: they are read when
// they are written.
type column struct {
	leaves []any  // leaf fields: the values
	cells  []cell // composite fields: what became of the values
	items  []cell // of lists
	tables []*table
	failed []*failure
	all    *failure // the field failed for all objects
}

type cell struct {
	kind cellKind
	a, b int32
}

type cellKind uint8

const (
	cellNull   cellKind = iota
	cellObject          // row b of tables[a]
	cellList            // items[a:b]
	cellFailed          // failed[a]
)

// Execute runs a query or mutation. The context is passed to every resolver; when it is done, no further
// resolver is called and their fields fail with its error.
func (e *Engine) Execute(ctx context.Context, o *Operation) Response {
	if o.Kind() == ast.Subscription {
		err := errors.New("a subscription was executed, not subscribed to")
		return Response{Data: json.RawMessage("null"), Errors: gqlerror.List{e.present(ctx, err)}}
	}
	t := &table{plan: o.rootPlan(), parents: []any{Root{}}}
	x := execution{engine: e, ctx: ctx, op: o}
	x.resolve(t)
	return e.respond(ctx, o, t)
}

// respond writes the response whose root object is the one row of t.
func (e *Engine) respond(ctx context.Context, o *Operation, t *table) Response {
	w := &writer{engine: e, ctx: ctx, buf: make([]byte, 0, o.doc.size.Load()+o.doc.size.Load()/8+64)}
	if !w.object(t, 0) {
		return Response{Data: json.RawMessage("null"), Errors: w.errs}
	}
	o.doc.size.Store(int64(len(w.buf)))
	return Response{Data: w.buf, Errors: w.errs}
}

// execution is one run of an operation's resolvers.
type execution struct {
	engine *Engine
	ctx    context.Context // of the call this lives in
	op     *Operation
}

// resolve fills a table's columns, each with everything below it before the next.
func (x *execution) resolve(t *table) {
	t.columns = make([]column, len(t.plan.fields))
	for i := range t.columns {
		f := &t.plan.fields[i]
		if f.typ == nil || (f.typ.value != nil && f.typ.typ.leaf != notLeaf) {
			continue
		}
		x.column(&t.columns[i], f, t.parents)
	}
}

func (x *execution) column(c *column, f *planField, parents []any) {
	values, err := x.call(f, parents)
	if err == nil {
		err = x.fill(c, f, values)
	}
	if err != nil {
		*c = column{all: &failure{err: err}}
		return
	}
	for _, t := range c.tables {
		x.resolve(t)
	}
}

// call resolves a field for all parents.
func (x *execution) call(f *planField, parents []any) (values []any, err error) {
	if err := x.ctx.Err(); err != nil {
		return nil, err
	}
	if f.typ.many != nil {
		defer x.recover(&err)
		return f.typ.many(x.ctx, parents, f.args)
	}
	values = make([]any, len(parents))
	for i, p := range parents {
		v, err := x.callOne(f, p)
		if err != nil {
			v = err
		}
		values[i] = v
	}
	return values, nil
}

func (x *execution) callOne(f *planField, parent any) (v any, err error) {
	defer x.recover(&err)
	if f.typ.value != nil {
		return f.typ.value(parent), nil
	}
	if err := x.ctx.Err(); err != nil {
		return nil, err
	}
	return f.typ.one(x.ctx, parent, f.args)
}

func (x *execution) recover(err *error) {
	if p := recover(); p != nil {
		*err = x.engine.recovered(x.ctx, p)
	}
}

// fill sorts the values of a field into the column and the objects among them into its tables.
func (x *execution) fill(c *column, f *planField, values []any) (err error) {
	if f.typ.typ.leaf != notLeaf {
		c.leaves = values
		return nil
	}
	defer x.recover(&err) // TypeOf is not ours
	c.cells = make([]cell, len(values))
	for i, v := range values {
		c.cells[i] = x.cell(c, f, f.typ.typ, v)
	}
	return nil
}

func (x *execution) cell(c *column, f *planField, t *typeRef, v any) cell {
	if isNil(v) {
		return cell{}
	}
	if err, ok := v.(error); ok {
		return c.fail(err)
	}
	if t.isList() {
		return x.listCell(c, f, t.elem, v)
	}
	obj := t.object
	if obj == nil {
		name := x.engine.cfg.TypeOf(v)
		if obj = t.abstract[name]; obj == nil {
			return c.fail(fmt.Errorf("%s.%s: %T is of type %q, which is no %s", f.typ.owner.name, f.typ.name, v, name, t.name))
		}
	}
	for i, tab := range c.tables {
		if tab.plan.object == obj {
			tab.parents = append(tab.parents, v)
			return cell{cellObject, int32(i), int32(len(tab.parents) - 1)}
		}
	}
	tab := &table{plan: x.op.sub(f, obj), parents: make([]any, 1, max(len(c.cells), len(c.items)))}
	tab.parents[0] = v
	c.tables = append(c.tables, tab)
	return cell{cellObject, int32(len(c.tables) - 1), 0}
}

func (x *execution) listCell(c *column, f *planField, elem *typeRef, v any) cell {
	items, ok := v.([]any)
	if !ok {
		rv := reflect.ValueOf(v)
		if rv.Kind() != reflect.Slice {
			return c.fail(fmt.Errorf("%s.%s: %T is no list", f.typ.owner.name, f.typ.name, v))
		}
		items = make([]any, rv.Len())
		for i := range items {
			items[i] = rv.Index(i).Interface()
		}
	}
	start := len(c.items)
	c.items = append(c.items, make([]cell, len(items))...) // lists within lists come after
	for i, item := range items {
		done := x.cell(c, f, elem, item)
		c.items[start+i] = done
	}
	return cell{cellList, int32(start), int32(start + len(items))}
}

func (c *column) fail(err error) cell {
	c.failed = append(c.failed, &failure{err: err})
	return cell{cellFailed, int32(len(c.failed) - 1), 0}
}

// isNil reports whether a value is nothing: nil, or a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}
