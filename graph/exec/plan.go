package exec

import "github.com/vektah/gqlparser/v2/ast"

// plan is what to do with the objects of one type at one place of an operation: fragments expanded, fields of
// the same response key merged, conditions evaluated. It belongs to one execution.
type plan struct {
	object *object
	fields []planField
}

type planField struct {
	key  string     // in the response
	typ  *fieldType // nil for __typename
	args Args
	pos  *ast.Position
	sets []ast.SelectionSet // of all merged fields
	subs []*plan            // for the object types met so far
}

// plan collects the fields of selection sets for an object type (CollectFields of the specification).
func (o *Operation) plan(obj *object, sets []ast.SelectionSet) *plan {
	n := 0
	for _, set := range sets {
		n += len(set)
	}
	c := collector{op: o, plan: &plan{object: obj, fields: make([]planField, 0, n)}}
	for _, set := range sets {
		c.collect(set)
	}
	return c.plan
}

type collector struct {
	op   *Operation
	plan *plan
	seen []*ast.FragmentDefinition
}

func (c *collector) collect(set ast.SelectionSet) {
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			if c.op.included(s.Directives) {
				c.field(s)
			}
		case *ast.InlineFragment:
			if c.op.included(s.Directives) && (s.TypeCondition == "" || c.plan.object.satisfies[s.TypeCondition]) {
				c.collect(s.SelectionSet)
			}
		case *ast.FragmentSpread:
			if c.op.included(s.Directives) && c.first(s.Definition) &&
				c.plan.object.satisfies[s.Definition.TypeCondition] {
				c.collect(s.Definition.SelectionSet)
			}
		}
	}
}

func (c *collector) first(f *ast.FragmentDefinition) bool {
	for _, seen := range c.seen {
		if seen == f {
			return false
		}
	}
	c.seen = append(c.seen, f)
	return true
}

func (c *collector) field(f *ast.Field) {
	fields := c.plan.fields
	for i := range fields { // at most the fields of the type and the allowed aliases: a scan does
		if fields[i].key == f.Alias {
			if len(f.SelectionSet) > 0 {
				fields[i].sets = append(fields[i].sets, f.SelectionSet)
			}
			return
		}
	}
	merged := planField{key: f.Alias, typ: c.plan.object.fields[f.Name], pos: f.Position, args: c.op.args[f]}
	if len(f.SelectionSet) > 0 {
		merged.sets = []ast.SelectionSet{f.SelectionSet}
	}
	c.plan.fields = append(fields, merged)
}

// sub answers the plan for objects of a type below a field.
func (o *Operation) sub(f *planField, obj *object) *plan {
	for _, p := range f.subs {
		if p.object == obj {
			return p
		}
	}
	p := o.plan(obj, f.sets)
	f.subs = append(f.subs, p)
	return p
}
