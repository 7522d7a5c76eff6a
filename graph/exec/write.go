package exec

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// failure is an error on its way to the client; it is presented once, however many places it fails.
type failure struct {
	err   error
	shown *gqlerror.Error
}

// writer writes resolved tables as JSON. Its methods that answer a bool answer false when what they were to
// write is null where null is not allowed: the error is recorded and the buffer is as it was, and the caller
// makes itself null in turn, or passes it on.
type writer struct {
	engine *Engine
	ctx    context.Context // of the call this lives in
	buf    []byte
	path   []step
	errs   gqlerror.List
}

// step is a part of a path: a key, or an index where key is empty.
type step struct {
	key   string
	index int
}

func (w *writer) object(t *table, row int) bool {
	start := len(w.buf)
	w.buf = append(w.buf, '{')
	for i := range t.plan.fields {
		f := &t.plan.fields[i]
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, '"')
		w.buf = append(w.buf, f.key...) // a GraphQL name: nothing to escape
		w.buf = append(w.buf, '"', ':')
		if f.typ == nil { // __typename
			w.buf = appendString(w.buf, t.plan.object.name)
			continue
		}
		w.path = append(w.path, step{key: f.key})
		ok := w.field(t, i, row)
		w.path = w.path[:len(w.path)-1]
		if !ok {
			w.buf = w.buf[:start]
			return false
		}
	}
	w.buf = append(w.buf, '}')
	return true
}

func (w *writer) field(t *table, i, row int) bool {
	f, c := &t.plan.fields[i], &t.columns[i]
	switch {
	case c.all != nil:
		return w.fail(f, f.typ.typ, c.all)
	case f.typ.typ.leaf == notLeaf:
		return w.cell(c, f, f.typ.typ, c.cells[row])
	}
	return w.leafField(f, c, row, t.parents[row])
}

// leafField calls code that is not ours, properties and Stringers: a panic is the failure of the field.
func (w *writer) leafField(f *planField, c *column, row int, parent any) (ok bool) {
	typ := f.typ.typ
	start, depth := len(w.buf), len(w.path)
	defer func() {
		if p := recover(); p != nil {
			w.buf, w.path = w.buf[:start], w.path[:depth]
			ok = w.fail(f, typ, &failure{err: w.engine.recovered(w.ctx, p)})
		}
	}()
	switch {
	case c.leaves != nil:
		return w.value(f, typ, c.leaves[row])
	case f.typ.write == nil || typ.isList():
		return w.value(f, typ, f.typ.value(parent))
	}
	if err := f.typ.write(w, typ, parent); err != nil {
		w.buf = w.buf[:start]
		return w.fail(f, typ, &failure{err: f.wrong(err)})
	}
	return true
}

func (w *writer) cell(c *column, f *planField, t *typeRef, x cell) bool {
	switch x.kind {
	case cellFailed:
		return w.fail(f, t, c.failed[x.a])
	case cellObject:
		return w.object(c.tables[x.a], int(x.b)) || w.absorb(t)
	case cellList:
		items := c.items[x.a:x.b]
		return w.list(t, len(items), func(i int) bool { return w.cell(c, f, t.elem, items[i]) })
	}
	return w.null(f, t)
}

// value writes the value of a leaf field, or of a list of leaves.
func (w *writer) value(f *planField, t *typeRef, v any) bool {
	if isNil(v) {
		return w.null(f, t)
	}
	if err, ok := v.(error); ok {
		return w.fail(f, t, &failure{err: err})
	}
	if !t.isList() {
		start := len(w.buf)
		if err := w.leaf(t, v); err != nil {
			w.buf = w.buf[:start]
			return w.fail(f, t, &failure{err: f.wrong(err)})
		}
		return true
	}
	switch items := v.(type) {
	case []any:
		return w.list(t, len(items), func(i int) bool { return w.value(f, t.elem, items[i]) })
	case []string:
		return w.list(t, len(items), func(i int) bool { return w.value(f, t.elem, items[i]) })
	}
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Slice {
		return w.fail(f, t, &failure{err: f.wrong(fmt.Errorf("%T is no list", v))})
	}
	return w.list(t, rv.Len(), func(i int) bool { return w.value(f, t.elem, rv.Index(i).Interface()) })
}

func (w *writer) list(t *typeRef, n int, item func(i int) bool) bool {
	start := len(w.buf)
	w.buf = append(w.buf, '[')
	for i := range n {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.path = append(w.path, step{index: i})
		ok := item(i)
		w.path = w.path[:len(w.path)-1]
		if !ok {
			w.buf = w.buf[:start]
			return w.absorb(t)
		}
	}
	w.buf = append(w.buf, ']')
	return true
}

// absorb makes a value null whose inside failed, if it may be null.
func (w *writer) absorb(t *typeRef) bool {
	if t.nonNull {
		return false
	}
	w.buf = append(w.buf, "null"...)
	return true
}

// null writes a value that resolved to nothing.
func (w *writer) null(f *planField, t *typeRef) bool {
	if t.nonNull {
		return w.fail(f, t, &failure{err: f.wrong(errors.New("null for a value that must not be"))})
	}
	return w.absorb(t)
}

// fail records an error at the current path.
func (w *writer) fail(f *planField, t *typeRef, failed *failure) bool {
	if len(w.errs) < w.engine.cfg.Limits.Errors {
		if failed.shown == nil {
			failed.shown = w.engine.present(w.ctx, failed.err)
		}
		shown := *failed.shown
		shown.Path = make(ast.Path, len(w.path))
		for i, s := range w.path {
			if s.key != "" {
				shown.Path[i] = ast.PathName(s.key)
			} else {
				shown.Path[i] = ast.PathIndex(s.index)
			}
		}
		w.errs = append(w.errs, at(&shown, f.pos))
	}
	return w.absorb(t)
}

// wrong says which field an error of the engine's own is about.
func (f *planField) wrong(err error) error {
	return fmt.Errorf("%s.%s: %w", f.typ.owner.name, f.typ.name, err)
}
