package exec

import (
	"context"
	"fmt"
	"time"
)

// Root is the parent of the fields of Query and Mutation.
type Root struct{}

// Field is a resolver: made by [Value], [One], [Many] or [Stream].
//
// What a resolver answers becomes JSON by the type of its field. A nil, or a nil pointer, is null. A list is a
// slice (a nil slice of a concrete type is the empty list). Int takes Go integers within 32 bits; Float floats
// and integers; Boolean bools; ID strings and integers; String, enums and custom scalars take strings, types
// of kind string and fmt.Stringers; custom scalars also numbers, bools and time.Time, which is written in UTC
// with milliseconds. Pointers to these are followed. Anything else is an internal error of that field. An
// object is whatever the resolvers of its type take as parent. An error in place of a value, or of an item of
// a list, fails that one value.
type Field struct {
	value  func(parent any) any
	write  func(w *writer, t *typeRef, parent any) error // Value of a common leaf type: no boxing
	one    func(ctx context.Context, parent any, args Args) (any, error)
	many   func(ctx context.Context, parents []any, args Args) ([]any, error)
	stream func(ctx context.Context, args Args) (<-chan any, error)
}

// Value resolves a field that is a property of its parent: it cannot fail, wait, or take arguments. It may be
// called more or less often than once for a parent.
func Value[P, V any](get func(parent P) V) Field {
	f := Field{value: func(p any) any { return get(p.(P)) }}
	switch get := any(get).(type) {
	case func(P) string:
		f.write = func(w *writer, t *typeRef, p any) error { return w.string(t, get(p.(P))) }
	case func(P) bool:
		f.write = func(w *writer, t *typeRef, p any) error { return w.bool(t, get(p.(P))) }
	case func(P) int:
		f.write = func(w *writer, t *typeRef, p any) error { return w.int(t, int64(get(p.(P)))) }
	case func(P) int64:
		f.write = func(w *writer, t *typeRef, p any) error { return w.int(t, get(p.(P))) }
	case func(P) float64:
		f.write = func(w *writer, t *typeRef, p any) error { return w.float(t, get(p.(P))) }
	case func(P) time.Time:
		f.write = func(w *writer, t *typeRef, p any) error { return w.time(t, get(p.(P))) }
	}
	return f
}

// One resolves a field for one parent at a time. It is meant for root fields and others that have one parent
// anyway: below a list it is called once for every item.
func One[P, V any](resolve func(ctx context.Context, parent P, args Args) (V, error)) Field {
	return Field{one: func(ctx context.Context, p any, args Args) (any, error) {
		return resolve(ctx, p.(P), args)
	}}
}

// Many resolves a field for all parents of one selection in one call. Result i belongs to parent i; a result
// that is an error fails that parent's field alone, an error beside the results fails the field of all.
func Many[P, V any](resolve func(ctx context.Context, parents []P, args Args) ([]V, error)) Field {
	return Field{many: func(ctx context.Context, parents []any, args Args) ([]any, error) {
		ps := make([]P, len(parents))
		for i, p := range parents {
			ps[i] = p.(P)
		}
		vs, err := resolve(ctx, ps, args)
		if err != nil {
			return nil, err
		}
		if len(vs) != len(ps) {
			return nil, fmt.Errorf("resolver answered %d results for %d parents", len(vs), len(ps))
		}
		return List(vs), nil
	}}
}

// Stream is the source of a subscription field. Every value received is the value of the field for one
// response; an error received is a response with that error. The subscription ends when the channel is closed.
// The source must end, and stop sending, when ctx is done; nobody receives after that.
func Stream(source func(ctx context.Context, args Args) (<-chan any, error)) Field {
	return Field{stream: source}
}

// List turns a slice into one of any, the form of a list that costs no reflection.
func List[T any](items []T) []any {
	if vs, ok := any(items).([]any); ok {
		return vs
	}
	vs := make([]any, len(items))
	for i, item := range items {
		vs[i] = item
	}
	return vs
}
