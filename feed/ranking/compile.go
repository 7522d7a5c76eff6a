package ranking

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// The parser of expr makes a syntax tree of an expression, and this file compiles the tree into
// functions. It accepts only the part of the language whose cost has a bound, and boxes no value
// while posts are scored.

// values holds the values of the signals that an expression reads, in the order of
// Ranking.signals.
type values *[MaxSignals]float64

// number and condition are compiled parts of an expression.
type (
	number    func(values) float64
	condition func(values) bool
)

// signalNames are the signals other than those in the data of posts.
var signalNames = []string{"age", "posted", "likes", "affinity", "own"}

// functions are the functions of an expression that take one number. ofTwo and comparisons are
// the operators of two numbers.
var (
	functions = map[string]func(float64) float64{
		"abs": math.Abs, "ceil": math.Ceil, "exp": math.Exp, "floor": math.Floor, "log": math.Log, "log10": math.Log10, "log2": math.Log2,
		"round": math.Round, "sqrt": math.Sqrt,
	}
	ofTwo = map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b }, "-": func(a, b float64) float64 { return a - b },
		"*": func(a, b float64) float64 { return a * b }, "/": func(a, b float64) float64 { return a / b },
		"%": math.Mod, "^": math.Pow, "**": math.Pow,
	}
	comparisons = map[string]func(a, b float64) bool{
		"<": func(a, b float64) bool { return a < b }, "<=": func(a, b float64) bool { return a <= b },
		">": func(a, b float64) bool { return a > b }, ">=": func(a, b float64) bool { return a >= b },
		"==": func(a, b float64) bool { return a == b }, "!=": func(a, b float64) bool { return a != b },
	}
)

// Compile compiles an expression into a ranking. Its error says what is not allowed, and at which
// character.
func Compile(name, expression string) (*Ranking, error) {
	if len(expression) > MaxExpression {
		return nil, fmt.Errorf("the expression has %d bytes: at most %d are allowed", len(expression), MaxExpression)
	}
	tree, err := parser.Parse(expression)
	if err != nil {
		var at *file.Error
		if errors.As(err, &at) {
			err = fmt.Errorf("at character %d: %s", at.From+1, strings.Join(strings.Fields(at.Message), " "))
		}
		return nil, err
	}
	c := compiler{Ranking: &Ranking{Name: name, Expression: expression}}
	c.score = c.number(tree.Node)
	return c.Ranking, c.err
}

// compiler compiles one expression. After an error, the functions that it returns must not be
// called.
type compiler struct {
	*Ranking
	operations int
	err        error // the first one
}

func (c *compiler) refuse(at ast.Node, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at character %d: %s", at.Location().From+1, fmt.Sprintf(format, args...))
	}
}

func (c *compiler) count(at ast.Node) {
	if c.operations++; c.operations > MaxOperations {
		c.refuse(at, "the expression has more than %d operations", MaxOperations)
	}
}

func constant(x float64) number { return func(values) float64 { return x } }

func (c *compiler) number(node ast.Node) number {
	c.count(node)
	switch n := node.(type) {
	case *ast.IntegerNode:
		return constant(float64(n.Value))
	case *ast.FloatNode:
		return constant(n.Value)
	case *ast.IdentifierNode:
		if !slices.Contains(signalNames, n.Value) {
			c.refuse(n, "%q is no signal: there are %s, and data.NAME for a number in the data of a post", n.Value, strings.Join(signalNames, ", "))
		}
		return c.signal(n, n.Value, nil)
	case *ast.MemberNode:
		path := dataPath(n)
		if path == nil {
			c.refuse(n, "only data has parts, as in data.price or data.rating.mean")
		}
		return c.signal(n, dataName(path), path)
	case *ast.UnaryNode:
		of := c.number(n.Node)
		switch n.Operator {
		case "+":
			return of
		case "-":
			return func(v values) float64 { return -of(v) }
		}
		c.refuse(n, "%s makes a condition, where a number belongs", n.Operator)
	case *ast.BinaryNode:
		do := ofTwo[n.Operator]
		if do == nil {
			if _, compares := comparisons[n.Operator]; compares {
				c.refuse(n, "%s makes a condition, where a number belongs: write CONDITION ? NUMBER : NUMBER", n.Operator)
			}
			c.refuse(n, "%s is not an operator of numbers", n.Operator)
			return nil
		}
		a, b := c.number(n.Left), c.number(n.Right)
		return func(v values) float64 { return do(a(v), b(v)) }
	case *ast.ConditionalNode:
		when, a, b := c.condition(n.Cond), c.number(n.Exp1), c.number(n.Exp2)
		return func(v values) float64 {
			if when(v) {
				return a(v)
			}
			return b(v)
		}
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, callee.Value, n.Arguments)
		}
		c.refuse(n, "this cannot be called")
	default:
		c.refuse(node, "a number belongs here: an expression has numbers, signals, operators, functions and CONDITION ? NUMBER : NUMBER")
	}
	return nil
}

// call compiles a function call.
func (c *compiler) call(at ast.Node, name string, arguments []ast.Node) number {
	var of []number
	least, most := 1, 1
	do, pick := functions[name], math.Max
	switch name {
	case "min":
		pick = math.Min
		fallthrough
	case "max":
		least, most = 2, MaxOperations
	default:
		if do == nil {
			known := []string{"max", "min"}
			for function := range functions {
				known = append(known, function)
			}
			slices.Sort(known)
			c.refuse(at, "%q is no function: there are %s", name, strings.Join(known, ", "))
			return nil
		}
	}
	if n := len(arguments); n < least || n > most {
		c.refuse(at, "%s has %d arguments: it takes %s", name, n, map[int]string{1: "one number", 2: "two numbers or more"}[least])
		return nil
	}
	for _, argument := range arguments {
		of = append(of, c.number(argument))
	}
	first, rest := of[0], of[1:]
	if do != nil {
		return func(v values) float64 { return do(first(v)) }
	}
	return func(v values) float64 {
		x := first(v)
		for _, f := range rest {
			x = pick(x, f(v))
		}
		return x
	}
}

func (c *compiler) condition(node ast.Node) condition {
	c.count(node)
	switch n := node.(type) {
	case *ast.BoolNode:
		return func(values) bool { return n.Value }
	case *ast.UnaryNode:
		if n.Operator == "!" || n.Operator == "not" {
			of := c.condition(n.Node)
			return func(v values) bool { return !of(v) }
		}
	case *ast.BinaryNode:
		if compare := comparisons[n.Operator]; compare != nil {
			a, b := c.number(n.Left), c.number(n.Right)
			return func(v values) bool { return compare(a(v), b(v)) }
		}
		switch n.Operator {
		case "&&", "and":
			a, b := c.condition(n.Left), c.condition(n.Right)
			return func(v values) bool { return a(v) && b(v) }
		case "||", "or":
			a, b := c.condition(n.Left), c.condition(n.Right)
			return func(v values) bool { return a(v) || b(v) }
		}
	}
	c.refuse(node, "a condition belongs here, such as likes > 10")
	return nil
}

// signal compiles the reading of a signal. path is the path of a number in the data of a post;
// nil for other signals.
func (c *compiler) signal(at ast.Node, name string, path []string) number {
	i := slices.Index(c.signals, name)
	if i < 0 {
		if i = len(c.signals); i == MaxSignals {
			c.refuse(at, "the expression has more than %d signals", MaxSignals)
			return nil
		}
		c.signals, c.data = append(c.signals, name), append(c.data, path)
		c.affinity = c.affinity || name == "affinity"
	}
	return func(v values) float64 { return v[i] }
}

var isWord = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// dataName returns the name of the path in expressions. Different paths have different names.
func dataName(path []string) string {
	name := "data"
	for _, part := range path {
		if isWord.MatchString(part) {
			name += "." + part
		} else {
			name += fmt.Sprintf("[%q]", part)
		}
	}
	return name
}

// dataPath returns ["a", "b"] for data.a.b, and nil for anything that is not a part of data.
func dataPath(n *ast.MemberNode) []string {
	name, ok := n.Property.(*ast.StringNode)
	if !ok || n.Optional || n.Method {
		return nil
	}
	switch of := n.Node.(type) {
	case *ast.IdentifierNode:
		if of.Value == "data" {
			return []string{name.Value}
		}
	case *ast.MemberNode:
		if path := dataPath(of); path != nil {
			return append(path, name.Value)
		}
	}
	return nil
}
