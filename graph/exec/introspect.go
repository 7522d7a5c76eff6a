package exec

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// typeView is a __Type: a named type, or a list or non-null of one (then def is nil).
type typeView struct {
	def *ast.Definition
	typ *ast.Type
}

// inputView is a __InputValue: an argument or a field of an input object.
type inputView struct {
	name, description string
	typ               *ast.Type
	def               *ast.Value
	directives        ast.DirectiveList
}

// introspection answers the resolvers of the introspection types, over the schema itself.
func introspection(schema *ast.Schema) map[string]map[string]Field {
	named := func(def *ast.Definition) *typeView {
		if def == nil {
			return nil
		}
		return &typeView{def: def}
	}
	byName := func(name string) *typeView { return named(schema.Types[name]) }
	view := func(t *ast.Type) *typeView {
		if t.NonNull || t.Elem != nil {
			return &typeView{typ: t}
		}
		return byName(t.NamedType)
	}
	arguments := func(defs ast.ArgumentDefinitionList) []*inputView {
		views := []*inputView{}
		for _, d := range defs {
			views = append(views, &inputView{d.Name, d.Description, d.Type, d.DefaultValue, d.Directives})
		}
		return views
	}

	return map[string]map[string]Field{
		schema.Query.Name: {
			"__schema": Value(func(Root) *ast.Schema { return schema }),
			"__type": One(func(_ context.Context, _ Root, a Args) (*typeView, error) {
				return byName(*a.String("name")), nil
			}),
		},
		"__Schema": {
			"description": Value(func(s *ast.Schema) *string { return orNil(s.Description) }),
			"types": Value(func(s *ast.Schema) []*typeView {
				views := []*typeView{}
				for _, name := range slices.Sorted(maps.Keys(s.Types)) {
					views = append(views, byName(name))
				}
				return views
			}),
			"queryType":        Value(func(s *ast.Schema) *typeView { return named(s.Query) }),
			"mutationType":     Value(func(s *ast.Schema) *typeView { return named(s.Mutation) }),
			"subscriptionType": Value(func(s *ast.Schema) *typeView { return named(s.Subscription) }),
			"directives": Value(func(s *ast.Schema) []*ast.DirectiveDefinition {
				defs := []*ast.DirectiveDefinition{}
				for _, name := range slices.Sorted(maps.Keys(s.Directives)) {
					defs = append(defs, s.Directives[name])
				}
				return defs
			}),
		},
		"__Type": {
			"kind":           Value((*typeView).kind),
			"name":           ofNamed(func(def *ast.Definition) any { return def.Name }),
			"description":    ofNamed(func(def *ast.Definition) any { return orNil(def.Description) }),
			"specifiedByURL": ofNamed(func(def *ast.Definition) any { return orNil(directiveArg(def.Directives, "specifiedBy", "url")) }),
			"isOneOf": ofNamed(func(def *ast.Definition) any {
				if def.Kind != ast.InputObject {
					return nil
				}
				return def.Directives.ForName("oneOf") != nil
			}),
			"ofType": Value(func(v *typeView) *typeView {
				switch {
				case v.def != nil:
					return nil
				case v.typ.NonNull:
					inner := *v.typ
					inner.NonNull = false
					return view(&inner)
				}
				return view(v.typ.Elem)
			}),
			"interfaces": ofNamed(func(def *ast.Definition) any {
				if def.Kind != ast.Object && def.Kind != ast.Interface {
					return nil
				}
				views := []any{}
				for _, name := range def.Interfaces {
					views = append(views, byName(name))
				}
				return views
			}),
			"possibleTypes": ofNamed(func(def *ast.Definition) any {
				if !def.IsAbstractType() {
					return nil
				}
				views := []any{}
				for _, possible := range schema.GetPossibleTypes(def) {
					if possible.Kind == ast.Object {
						views = append(views, named(possible))
					}
				}
				return views
			}),
			"fields": One(func(_ context.Context, v *typeView, a Args) (any, error) {
				if v.def == nil || (v.def.Kind != ast.Object && v.def.Kind != ast.Interface) {
					return nil, nil
				}
				fields := []any{}
				for _, f := range v.def.Fields {
					if !strings.HasPrefix(f.Name, "__") && listed(a, f.Directives) {
						fields = append(fields, f)
					}
				}
				return fields, nil
			}),
			"enumValues": One(func(_ context.Context, v *typeView, a Args) (any, error) {
				if v.def == nil || v.def.Kind != ast.Enum {
					return nil, nil
				}
				values := []any{}
				for _, value := range v.def.EnumValues {
					if listed(a, value.Directives) {
						values = append(values, value)
					}
				}
				return values, nil
			}),
			"inputFields": One(func(_ context.Context, v *typeView, a Args) (any, error) {
				if v.def == nil || v.def.Kind != ast.InputObject {
					return nil, nil
				}
				views := []*inputView{}
				for _, f := range v.def.Fields {
					views = append(views, &inputView{f.Name, f.Description, f.Type, f.DefaultValue, f.Directives})
				}
				return listedInputs(a, views), nil
			}),
		},
		"__Field": {
			"name":        Value(func(f *ast.FieldDefinition) string { return f.Name }),
			"description": Value(func(f *ast.FieldDefinition) *string { return orNil(f.Description) }),
			"type":        Value(func(f *ast.FieldDefinition) *typeView { return view(f.Type) }),
			"args": One(func(_ context.Context, f *ast.FieldDefinition, a Args) (any, error) {
				return listedInputs(a, arguments(f.Arguments)), nil
			}),
			"isDeprecated":      Value(func(f *ast.FieldDefinition) bool { return deprecated(f.Directives) }),
			"deprecationReason": Value(func(f *ast.FieldDefinition) *string { return reason(f.Directives) }),
		},
		"__InputValue": {
			"name":        Value(func(v *inputView) string { return v.name }),
			"description": Value(func(v *inputView) *string { return orNil(v.description) }),
			"type":        Value(func(v *inputView) *typeView { return view(v.typ) }),
			"defaultValue": Value(func(v *inputView) *string {
				if v.def == nil {
					return nil
				}
				return orNil(v.def.String())
			}),
			"isDeprecated":      Value(func(v *inputView) bool { return deprecated(v.directives) }),
			"deprecationReason": Value(func(v *inputView) *string { return reason(v.directives) }),
		},
		"__EnumValue": {
			"name":              Value(func(v *ast.EnumValueDefinition) string { return v.Name }),
			"description":       Value(func(v *ast.EnumValueDefinition) *string { return orNil(v.Description) }),
			"isDeprecated":      Value(func(v *ast.EnumValueDefinition) bool { return deprecated(v.Directives) }),
			"deprecationReason": Value(func(v *ast.EnumValueDefinition) *string { return reason(v.Directives) }),
		},
		"__Directive": {
			"name":         Value(func(d *ast.DirectiveDefinition) string { return d.Name }),
			"description":  Value(func(d *ast.DirectiveDefinition) *string { return orNil(d.Description) }),
			"isRepeatable": Value(func(d *ast.DirectiveDefinition) bool { return d.IsRepeatable }),
			"locations":    Value(func(d *ast.DirectiveDefinition) []ast.DirectiveLocation { return d.Locations }),
			"args": One(func(_ context.Context, d *ast.DirectiveDefinition, a Args) (any, error) {
				return listedInputs(a, arguments(d.Arguments)), nil
			}),
		},
	}
}

func (v *typeView) kind() string {
	switch {
	case v.def != nil:
		return string(v.def.Kind)
	case v.typ.NonNull:
		return "NON_NULL"
	}
	return "LIST"
}

// ofNamed is a property that only named types have.
func ofNamed(get func(def *ast.Definition) any) Field {
	return Value(func(v *typeView) any {
		if v.def == nil {
			return nil
		}
		return get(v.def)
	})
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// listed reports whether something with these directives is to be listed.
func listed(a Args, directives ast.DirectiveList) bool {
	include := a.Bool("includeDeprecated")
	return (include != nil && *include) || !deprecated(directives)
}

func listedInputs(a Args, views []*inputView) []any {
	inputs := []any{}
	for _, v := range views {
		if listed(a, v.directives) {
			inputs = append(inputs, v)
		}
	}
	return inputs
}

func deprecated(directives ast.DirectiveList) bool { return directives.ForName("deprecated") != nil }

func reason(directives ast.DirectiveList) *string {
	if !deprecated(directives) {
		return nil
	}
	given := directiveArg(directives, "deprecated", "reason")
	if given == "" {
		given = "No longer supported"
	}
	return &given
}

func directiveArg(directives ast.DirectiveList, directive, arg string) string {
	if d := directives.ForName(directive); d != nil {
		if a := d.Arguments.ForName(arg); a != nil {
			return a.Value.Raw
		}
	}
	return ""
}
