package exec

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// Common is an event that several subscriptions receive at the same time. The engine executes it once for all
// subscriptions with the same selection, into a template with a hole for each value that differs between
// subscribers, and fills the holes for each subscriber. A resolver whose value depends on the subscriber must
// report that: with [Int] and [Flag], which leave a hole, or with [Own], which makes the engine execute the
// event separately for each subscriber. So is an event with a field that has a price, in the turn of its client.
type Common interface {
	// Once returns the result of made for the key. It calls made once for all subscriptions that receive the
	// event. It returns nil for an event that only one subscription receives.
	Once(key any, made func() any) any
	// Soon is Once for a caller that must not block. If wait is not nil, the result is
	// available after wait is closed.
	Soon(key any, made func() any) (result any, wait <-chan struct{})
	// Neutral returns the event with the placeholder in every place where the
	// subscriber's own string belongs.
	Neutral(placeholder string) any
	// AppendOwn appends the subscriber's string, for which the placeholder stands.
	AppendOwn(b []byte) []byte
}

// placeholder stands for a string that differs between subscribers. It is random and never leaves the
// process, so no user's text contains it.
var placeholder = rand.Text()

// placeholderInt stands for a number that differs between subscribers. After a key in a response it is always
// a placeholder: counts are never negative, and in a string a backslash precedes every quotation mark.
const placeholderInt = math.MinInt32

// shape is equal for subscriptions whose responses to an event are equal except for the holes.
type shape struct {
	def       *ast.OperationDefinition
	variables string // the variables that affect the responses, in JSON
}

// template is the response to an event in parts, with a hole between each two.
type template struct {
	parts [][]byte
	holes []hole

	alone bool        // not a template: the event is executed for one subscriber
	own   atomic.Bool // a value depends on the subscriber and has no hole, or was read for this subscriber alone
	mu    sync.Mutex
	count func(ctx context.Context, event any) (int, error)
	flag  func(ctx context.Context, event any) (bool, error)
	flags bool // the value of flag with which the response was executed
}

type hole bool

const (
	stringHole hole = false
	intHole    hole = true
)

type templateKey struct{}

func templateOf(ctx context.Context) *template {
	t, _ := ctx.Value(templateKey{}).(*template)
	return t
}

// Own reports that the value being resolved depends on the subscriber.
func Own(ctx context.Context) {
	if t := templateOf(ctx); t != nil {
		t.own.Store(true)
	}
}

// Read reports that the value being resolved is read from a store and is the same for all subscribers.
func Read(ctx context.Context) {
	if t := templateOf(ctx); t != nil && t.alone {
		t.own.Store(true)
	}
}

// Int returns a non-negative number that differs between subscribers. count returns it for the event being
// executed and the subscriber's context. All calls for one event must compute the same number.
func Int(ctx context.Context, event any, count func(ctx context.Context, event any) (int, error)) (int, error) {
	t := templateOf(ctx)
	if t == nil || t.alone {
		return count(ctx, event)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count = count
	return placeholderInt, nil
}

// Flag is Int for a boolean. If the event is executed for one subscriber alone, ok is false, and the
// caller must compute the value itself.
func Flag(ctx context.Context, flag func(ctx context.Context, event any) (bool, error)) (set, ok bool) {
	t := templateOf(ctx)
	if t == nil || t.alone {
		return false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flag = flag
	return t.flags, true
}

type flagged struct {
	shape
	set bool
}

// fromTemplate returns the response to a shared event, or nil if the event must be executed
// for this subscription alone.
func (s *Subscription) fromTemplate(ctx context.Context, event Common) json.RawMessage {
	t := s.template(ctx, event, false)
	if t == nil {
		return nil
	}
	if t.flag != nil {
		switch set, err := t.flag(ctx, event); {
		case err != nil:
			return nil
		case set:
			if t = s.template(ctx, event, true); t == nil {
				return nil
			}
		}
	}
	count := ""
	if t.count != nil {
		n, err := t.count(ctx, event)
		if err != nil {
			return nil
		}
		count = strconv.Itoa(n)
	}
	size := len(t.holes) << 8 // more than the length of most subscribers' strings
	for _, part := range t.parts {
		size += len(part)
	}
	return t.fill(make([]byte, 0, size), event.AppendOwn, count)
}

// fill appends the template to b. In its holes it calls own, which appends the
// subscriber's string, or writes count.
func (t *template) fill(b []byte, own func(b []byte) []byte, count string) []byte {
	for i, part := range t.parts {
		b = append(b, part...)
		switch {
		case i == len(t.holes):
		case t.holes[i] == intHole:
			b = append(b, count...)
		default:
			b = own(b)
		}
	}
	return b
}

// template returns the template shared by all subscriptions of this shape, or nil if there is none.
func (s *Subscription) template(ctx context.Context, event Common, flags bool) *template {
	key := s.plain
	if flags {
		key = flagged{s.shape, true}
	}
	made, _ := event.Once(key, func() any { return s.newTemplate(ctx, event, flags) }).(*template)
	return made
}

// newTemplate makes the template, or returns nil if the event needs a separate execution for each subscriber.
func (s *Subscription) newTemplate(ctx context.Context, event Common, flags bool) *template {
	t := &template{flags: flags}
	// The first subscription executes for all others, even if it ends meanwhile.
	ctx = context.WithValue(context.WithoutCancel(ctx), templateKey{}, t)
	response := s.execute(ctx, event.Neutral(placeholder))
	if t.own.Load() || len(response.Errors) > 0 || response.Data == nil {
		return nil
	}
	t.cut(bytes.Clone(response.Data))
	if (t.count != nil) != slices.Contains(t.holes, intHole) {
		return nil
	}
	return t
}

// cut splits a response into parts and holes.
func (t *template) cut(data []byte) {
	number := []byte(`":` + strconv.Itoa(placeholderInt))
	for start := 0; ; {
		text := bytes.Index(data[start:], []byte(placeholder))
		count := bytes.Index(data[start:], number)
		for count > 0 && data[start+count-1] == '\\' { // the quotation mark is inside a string
			next := bytes.Index(data[start+count+1:], number)
			if next < 0 {
				count = -1
				break
			}
			count += 1 + next
		}
		switch {
		case text >= 0 && (count < 0 || text < count):
			t.parts, t.holes = append(t.parts, data[:start+text]), append(t.holes, stringHole)
			data = data[start+text+len(placeholder):]
		case count >= 0:
			t.parts, t.holes = append(t.parts, data[:start+count+2]), append(t.holes, intHole)
			data = data[start+count+len(number):]
		default:
			t.parts = append(t.parts, data)
			return
		}
	}
}

// shape returns the shape of the operation. It omits variables used only in arguments of the root field,
// which decide where a subscription begins and not what its responses contain.
func (o *Operation) shape() shape {
	used := map[string]any{}
	root := graphql.CollectFields(o.context, o.def.SelectionSet, []string{o.root()})[0]
	v := usage{o.context.Doc.Fragments, o.context.Variables, used, map[string]bool{}}
	v.selections(root.Selections)
	if len(used) == 0 {
		return shape{def: o.def}
	}
	values := make([]any, 0, 2*len(used))
	for _, name := range slices.Sorted(maps.Keys(used)) {
		values = append(values, name, used[name])
	}
	encoded, err := json.Marshal(values)
	if err != nil { // a unique shape
		encoded = []byte(rand.Text())
	}
	return shape{o.def, string(encoded)}
}

// usage collects the variables that selections use.
type usage struct {
	fragments ast.FragmentDefinitionList
	values    map[string]any
	used      map[string]any
	seen      map[string]bool // visited fragments
}

func (v usage) selections(set ast.SelectionSet) {
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			v.arguments(s.Arguments)
			v.directives(s.Directives)
			v.selections(s.SelectionSet)
		case *ast.InlineFragment:
			v.directives(s.Directives)
			v.selections(s.SelectionSet)
		case *ast.FragmentSpread:
			v.directives(s.Directives)
			if f := v.fragments.ForName(s.Name); f != nil && !v.seen[s.Name] {
				v.seen[s.Name] = true
				v.directives(f.Directives)
				v.selections(f.SelectionSet)
			}
		}
	}
}

func (v usage) directives(list ast.DirectiveList) {
	for _, d := range list {
		v.arguments(d.Arguments)
	}
}

func (v usage) arguments(list ast.ArgumentList) {
	for _, a := range list {
		v.value(a.Value)
	}
}

func (v usage) value(value *ast.Value) {
	if value.Kind == ast.Variable {
		v.used[value.Raw] = v.values[value.Raw]
		return
	}
	for _, child := range value.Children {
		v.value(child.Value)
	}
}
