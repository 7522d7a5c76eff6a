package exec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// object is an object type, compiled for execution.
type object struct {
	name      string
	fields    map[string]*fieldType
	satisfies map[string]bool // its own name and its interfaces and unions: the type conditions it meets
}

type fieldType struct {
	Field
	owner *object
	name  string
	typ   *typeRef
}

type leafKind uint8

const (
	notLeaf leafKind = iota
	leafInt
	leafFloat
	leafString
	leafBoolean
	leafID
	leafEnum
	leafCustom
)

var builtinLeaves = map[string]leafKind{
	"Int": leafInt, "Float": leafFloat, "String": leafString, "Boolean": leafBoolean, "ID": leafID,
}

// typeRef is the type of a field, compiled for execution.
type typeRef struct {
	nonNull bool
	elem    *typeRef // of a list
	name    string   // of the named type
	leaf    leafKind // of the named type; notLeaf for composite types
	enum    []string // values of an enum

	object   *object            // an object type
	abstract map[string]*object // the object types an interface or union may be
}

func (t *typeRef) isList() bool { return t.elem != nil }

// compile builds the object types of the schema with their resolvers, introspection included.
func compile(schema *ast.Schema, cfg Config) (map[string]*object, error) {
	fields := introspection(schema)
	var problems []error
	for name, resolvers := range cfg.Fields {
		def := schema.Types[name]
		if def == nil || def.Kind != ast.Object || def.BuiltIn {
			problems = append(problems, fmt.Errorf("resolvers for %s: the schema has no such object type", name))
			continue
		}
		for field := range resolvers {
			if def.Fields.ForName(field) == nil {
				problems = append(problems, fmt.Errorf("resolver for %s.%s: the schema has no such field", name, field))
			}
		}
		merged := maps.Clone(resolvers)
		maps.Copy(merged, fields[name])
		fields[name] = merged
	}

	objects := map[string]*object{}
	abstract := false
	for _, def := range schema.Types {
		switch def.Kind {
		case ast.Object:
			o := &object{name: def.Name, fields: map[string]*fieldType{}, satisfies: map[string]bool{def.Name: true}}
			for _, super := range schema.Implements[def.Name] {
				o.satisfies[super.Name] = true
			}
			objects[def.Name] = o
		case ast.Interface, ast.Union:
			abstract = true
		}
	}
	if abstract && cfg.TypeOf == nil {
		problems = append(problems, errors.New("the schema has interfaces or unions: TypeOf is required"))
	}
	for name, o := range objects {
		for _, def := range schema.Types[name].Fields {
			resolver := fields[name][def.Name]
			if problem := checkKind(resolver, schema.Types[name] == schema.Subscription); problem != "" {
				problems = append(problems, fmt.Errorf("field %s.%s %s", name, def.Name, problem))
				continue
			}
			o.fields[def.Name] = &fieldType{
				Field: resolver, owner: o, name: def.Name, typ: compileType(schema, objects, def.Type),
			}
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return objects, errors.Join(problems...)
}

func checkKind(f Field, subscription bool) string {
	switch {
	case f.value == nil && f.one == nil && f.many == nil && f.stream == nil:
		return "has no resolver"
	case subscription && f.stream == nil:
		return "is a subscription: its resolver must be a Stream"
	case !subscription && f.stream != nil:
		return "is no subscription: its resolver must not be a Stream"
	}
	return ""
}

func compileType(schema *ast.Schema, objects map[string]*object, t *ast.Type) *typeRef {
	if t.Elem != nil {
		elem := compileType(schema, objects, t.Elem)
		return &typeRef{
			nonNull: t.NonNull, elem: elem,
			name: elem.name, leaf: elem.leaf, enum: elem.enum, object: elem.object, abstract: elem.abstract,
		}
	}
	ref := &typeRef{nonNull: t.NonNull, name: t.NamedType}
	def := schema.Types[t.NamedType]
	switch def.Kind {
	case ast.Scalar:
		ref.leaf = leafCustom
		if leaf, ok := builtinLeaves[def.Name]; ok {
			ref.leaf = leaf
		}
	case ast.Enum:
		ref.leaf = leafEnum
		for _, v := range def.EnumValues {
			ref.enum = append(ref.enum, v.Name)
		}
	case ast.Object:
		ref.object = objects[def.Name]
	default:
		ref.abstract = map[string]*object{}
		for _, possible := range schema.GetPossibleTypes(def) {
			if o := objects[possible.Name]; o != nil {
				ref.abstract[possible.Name] = o
			}
		}
	}
	return ref
}

// withoutDefer hides the @defer of gqlparser's prelude: the engine does not implement it, so neither
// introspection nor validation should offer it.
func withoutDefer(schema *ast.Schema) *ast.Schema {
	s := *schema
	s.Directives = maps.Clone(schema.Directives)
	delete(s.Directives, "defer")
	return &s
}
