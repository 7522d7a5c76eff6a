package exec

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Coerced values are nil, int (32 bits), float64, bool, string (for String, ID, enums and custom
// scalars), []any and map[string]any. A JSONObject may also contain json.Number. Coercion never
// modifies the values of the request.

// leafKind is the representation of a scalar's values.
type leafKind uint8

const (
	leafCustom leafKind = iota
	leafInt
	leafFloat
	leafString
	leafBoolean
	leafID
	leafObject
)

var builtinLeaves = map[string]leafKind{
	"Int": leafInt, "Float": leafFloat, "String": leafString, "Boolean": leafBoolean, "ID": leafID,
	"JSONObject": leafObject, // a scalar of our schema: any JSON object
}

// invalid says why a value does not have its type, and where in the value.
type invalid struct {
	path   string
	reason string
}

func (i *invalid) within(path string) *invalid { return &invalid{path + i.path, i.reason} }

func invalidf(format string, args ...any) *invalid {
	return &invalid{reason: fmt.Sprintf(format, args...)}
}

func required(t *ast.Type) *invalid { return invalidf("a value of type %s is required", t) }

func cannot(t string, v any) *invalid { return invalidf("%s cannot represent %s", t, shown(v)) }

// shown returns a short form of a value for messages.
func shown(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case float64:
		if math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case string:
		if len(v) > 50 {
			v = v[:50] + "…"
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

func (e *Engine) coerceVariables(op *ast.OperationDefinition, given map[string]any) (map[string]any, *gqlerror.Error) {
	if len(op.VariableDefinitions) == 0 {
		return nil, nil
	}
	coerced := make(map[string]any, len(op.VariableDefinitions))
	for _, def := range op.VariableDefinitions {
		var bad *invalid
		v, ok := given[def.Variable]
		switch {
		case ok:
			v, bad = e.coerceValue(def.Type, v)
		case def.DefaultValue != nil:
			v, bad = e.coerceLiteral(def.Type, def.DefaultValue, nil)
		case def.Type.NonNull:
			bad = required(def.Type)
		default:
			continue
		}
		if bad != nil {
			return nil, at(requestError(CodeBadUserInput, "variable $%s%s: %s", def.Variable, bad.path, bad.reason),
				def.Position)
		}
		coerced[def.Variable] = v
	}
	return coerced, nil
}

func (e *Engine) coerceArguments(
	defs ast.ArgumentDefinitionList, given ast.ArgumentList, variables map[string]any,
) (map[string]any, *gqlerror.Error) {
	var coerced map[string]any
	for _, def := range defs {
		var literal *ast.Value
		if arg := given.ForName(def.Name); arg != nil && !unset(arg.Value, variables) {
			literal = arg.Value
		}
		v, ok, bad := e.coerceOptional(def.Type, literal, def.DefaultValue, variables)
		if bad != nil {
			return nil, requestError(CodeBadUserInput, "argument %s%s: %s", def.Name, bad.path, bad.reason)
		}
		if ok {
			if coerced == nil {
				coerced = make(map[string]any, len(defs))
			}
			coerced[def.Name] = v
		}
	}
	return coerced, nil
}

// coerceOptional coerces an optional value: the literal, else the default, else nothing.
func (e *Engine) coerceOptional(
	t *ast.Type, literal, def *ast.Value, variables map[string]any,
) (v any, ok bool, bad *invalid) {
	switch {
	case literal != nil:
		v, bad = e.coerceLiteral(t, literal, variables)
	case def != nil:
		v, bad = e.coerceLiteral(t, def, nil)
	case t.NonNull:
		return nil, false, required(t)
	default:
		return nil, false, nil
	}
	return v, true, bad
}

func unset(v *ast.Value, variables map[string]any) bool {
	if v.Kind != ast.Variable {
		return false
	}
	_, ok := variables[v.Raw]
	return !ok
}

// coerceLiteral coerces a value written in a document or schema.
func (e *Engine) coerceLiteral(t *ast.Type, v *ast.Value, variables map[string]any) (any, *invalid) {
	if v.Kind == ast.Variable {
		value := variables[v.Raw] // already coerced; validation has checked that its type fits here
		if value == nil && t.NonNull {
			return nil, required(t)
		}
		return value, nil
	}
	if v.Kind == ast.NullValue {
		if t.NonNull {
			return nil, required(t)
		}
		return nil, nil
	}
	if t.Elem != nil {
		if v.Kind != ast.ListValue {
			item, bad := e.coerceLiteral(t.Elem, v, variables)
			return []any{item}, bad
		}
		items := make([]any, len(v.Children))
		for i, child := range v.Children {
			var bad *invalid
			if items[i], bad = e.coerceLiteral(t.Elem, child.Value, variables); bad != nil {
				return nil, bad.within(fmt.Sprintf("[%d]", i))
			}
		}
		return items, nil
	}
	def := e.schema.Types[t.NamedType]
	switch def.Kind {
	case ast.InputObject:
		if v.Kind != ast.ObjectValue {
			return nil, invalidf("%s must be an object", def.Name)
		}
		return e.coerceObject(def, func(f *ast.FieldDefinition) (any, bool, *invalid) {
			literal := v.Children.ForName(f.Name)
			if literal != nil && unset(literal, variables) {
				literal = nil
			}
			return e.coerceOptional(f.Type, literal, f.DefaultValue, variables)
		})
	case ast.Enum:
		if v.Kind != ast.EnumValue || def.EnumValues.ForName(v.Raw) == nil {
			return nil, cannot(def.Name, v)
		}
		return v.Raw, nil
	}
	switch leaf := builtinLeaves[def.Name]; {
	case leaf == leafObject && v.Kind == ast.ObjectValue:
		return plainValue(v, variables), nil
	case leaf == leafObject:
		return nil, cannot(def.Name, v)
	case v.Kind == ast.IntValue && leaf == leafID:
		return v.Raw, nil
	case v.Kind == ast.IntValue && leaf != leafString && leaf != leafBoolean && leaf != leafCustom,
		v.Kind == ast.FloatValue && leaf == leafFloat:
		return coerceScalar(def.Name, json.Number(v.Raw))
	case v.Kind == ast.BooleanValue && leaf == leafBoolean:
		return v.Raw == "true", nil
	case v.Kind == ast.StringValue, v.Kind == ast.BlockValue:
		return coerceScalar(def.Name, v.Raw)
	}
	return nil, cannot(def.Name, v)
}

// plainValue returns a literal value in a JSONObject as JSON decoders would.
func plainValue(v *ast.Value, variables map[string]any) any {
	switch v.Kind {
	case ast.Variable:
		return variables[v.Raw]
	case ast.NullValue:
		return nil
	case ast.BooleanValue:
		return v.Raw == "true"
	case ast.IntValue, ast.FloatValue:
		return json.Number(v.Raw)
	case ast.ListValue:
		items := make([]any, len(v.Children))
		for i, child := range v.Children {
			items[i] = plainValue(child.Value, variables)
		}
		return items
	case ast.ObjectValue:
		fields := make(map[string]any, len(v.Children))
		for _, child := range v.Children {
			fields[child.Name] = plainValue(child.Value, variables)
		}
		return fields
	}
	return v.Raw // a string, or an enum value, which is a string in JSON
}

// coerceValue coerces a value decoded from JSON.
func (e *Engine) coerceValue(t *ast.Type, v any) (any, *invalid) {
	if v == nil {
		if t.NonNull {
			return nil, required(t)
		}
		return nil, nil
	}
	if t.Elem != nil {
		list, ok := v.([]any)
		if !ok {
			item, bad := e.coerceValue(t.Elem, v)
			return []any{item}, bad
		}
		items := make([]any, len(list))
		for i, item := range list {
			var bad *invalid
			if items[i], bad = e.coerceValue(t.Elem, item); bad != nil {
				return nil, bad.within(fmt.Sprintf("[%d]", i))
			}
		}
		return items, nil
	}
	def := e.schema.Types[t.NamedType]
	switch def.Kind {
	case ast.InputObject:
		object, ok := v.(map[string]any)
		if !ok {
			return nil, invalidf("%s must be an object", def.Name)
		}
		for name := range object {
			if def.Fields.ForName(name) == nil {
				return nil, invalidf("%s has no field %q", def.Name, name)
			}
		}
		return e.coerceObject(def, func(f *ast.FieldDefinition) (any, bool, *invalid) {
			value, ok := object[f.Name]
			if !ok {
				return e.coerceOptional(f.Type, nil, f.DefaultValue, nil)
			}
			value, bad := e.coerceValue(f.Type, value)
			return value, true, bad
		})
	case ast.Enum:
		s, ok := v.(string)
		if !ok || def.EnumValues.ForName(s) == nil {
			return nil, cannot(def.Name, v)
		}
		return s, nil
	}
	return coerceScalar(def.Name, v)
}

func (e *Engine) coerceObject(
	def *ast.Definition, field func(*ast.FieldDefinition) (any, bool, *invalid),
) (any, *invalid) {
	values := make(map[string]any, len(def.Fields))
	for _, f := range def.Fields {
		v, ok, bad := field(f)
		if bad != nil {
			return nil, bad.within("." + f.Name)
		}
		if ok {
			values[f.Name] = v
		}
	}
	if def.Directives.ForName("oneOf") != nil {
		set := 0
		for _, v := range values {
			if v != nil {
				set++
			}
		}
		if len(values) != 1 || set != 1 {
			return nil, invalidf("%s must have exactly one field", def.Name)
		}
	}
	return values, nil
}

func coerceScalar(name string, v any) (any, *invalid) {
	switch builtinLeaves[name] {
	case leafInt:
		f, ok := number(v)
		if !ok || f != math.Trunc(f) {
			return nil, cannot(name, v)
		}
		if f < math.MinInt32 || f > math.MaxInt32 {
			return nil, invalidf("Int cannot represent %s: it has more than 32 bits", shown(v))
		}
		return int(f), nil
	case leafFloat:
		if f, ok := number(v); ok {
			return f, nil
		}
	case leafBoolean:
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case leafID:
		switch n := v.(type) {
		case string:
			return n, nil
		case int, int32, int64:
			return fmt.Sprint(n), nil
		case json.Number:
			if _, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
				return n.String(), nil
			}
		case float64:
			if n == math.Trunc(n) && math.Abs(n) < 1<<53 { // larger numbers may have been rounded by JSON
				return strconv.FormatInt(int64(n), 10), nil
			}
		}
	case leafObject:
		if object, ok := v.(map[string]any); ok {
			return object, nil
		}
	default: // String and custom scalars
		if s, ok := v.(string); ok {
			return s, nil
		}
	}
	return nil, cannot(name, v)
}

// number converts a JSON number of any type that decoders produce.
func number(v any) (float64, bool) {
	f := math.NaN()
	switch n := v.(type) {
	case float64:
		f = n
	case int:
		f = float64(n)
	case int32:
		f = float64(n)
	case int64:
		f = float64(n)
	case json.Number:
		parsed, err := n.Float64()
		if err != nil {
			return 0, false
		}
		f = parsed
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0)
}
