package exec

import "fmt"

// Args is a read-only view of a field's arguments, or of an input object, after coercion: defaults are filled
// in and every value is of its declared type. An accessor answers nil for what was left out or is null, and
// panics when the schema declares the argument with another type than it reads.
type Args struct {
	values map[string]any
}

// Has reports whether the argument was given, if only as null, or has a default.
func (a Args) Has(name string) bool {
	_, ok := a.values[name]
	return ok
}

// Int reads an Int.
func (a Args) Int(name string) *int { return scalar[int](a, name) }

// Float reads a Float.
func (a Args) Float(name string) *float64 { return scalar[float64](a, name) }

// Bool reads a Boolean.
func (a Args) Bool(name string) *bool { return scalar[bool](a, name) }

// String reads a String, an ID, an enum value or a custom scalar.
func (a Args) String(name string) *string { return scalar[string](a, name) }

// Strings reads a list of what String reads; null items are left out.
func (a Args) Strings(name string) []string {
	items := scalar[[]any](a, name)
	if items == nil {
		return nil
	}
	out := make([]string, 0, len(*items))
	for _, item := range *items {
		if item == nil {
			continue
		}
		s, ok := item.(string)
		if !ok {
			panic(fmt.Sprintf("exec: argument %s holds %T, not strings", name, item))
		}
		out = append(out, s)
	}
	return out
}

// Input reads an input object; one that is null or left out has no fields.
func (a Args) Input(name string) Args {
	if fields := scalar[map[string]any](a, name); fields != nil {
		return Args{*fields}
	}
	return Args{}
}

func scalar[T any](a Args, name string) *T {
	v := a.values[name]
	if v == nil {
		return nil
	}
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("exec: argument %s is a %T, read as %T", name, v, t))
	}
	return &t
}
