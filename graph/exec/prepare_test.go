package exec

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/ast"
)

func variables(t testing.TB, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var v map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	require.NoError(t, dec.Decode(&v))
	return v
}

// arguments returns the coerced arguments of the document's only field.
func arguments(t testing.TB, e *Engine, query string, variables map[string]any) string {
	t.Helper()
	op, errs := e.Prepare(t.Context(), Request{Query: query, Variables: variables})
	require.Empty(t, errs)
	f := op.def.SelectionSet[0].(*ast.Field)
	args, err := e.coerceArguments(f.Definition.Arguments, f.Arguments, op.context.Variables)
	require.Nil(t, err)
	return fmt.Sprint(args)
}

func TestArguments(t *testing.T) {
	e := newEngine(t, nil)
	for _, tc := range []struct{ name, query, variables, want string }{
		{"default", `{ echo }`, ``, `map[string:dflt]`},
		{"null is not the default", `{ echo(string: null) }`, ``, `map[string:<nil>]`},
		{"literals", `{ echo(int: -3, float: 2, bool: true, id: 7, ids: "x", visibility: PRIVATE, time: "now", string: """b""") }`, ``,
			`map[bool:true float:2 id:7 ids:[x] int:-3 string:b time:now visibility:PRIVATE]`},
		{"nested literals", `{ echo(string: null, filter: {must: 1, nested: {must: 2, text: null}}, matrix: [1, [2, null]]) }`, ``,
			`map[filter:map[must:1 nested:map[must:2 text:<nil> visibility:PUBLIC] text:any visibility:PUBLIC] matrix:[[1] [2 <nil>]] string:<nil>]`},
		{"variables", `query($i: Int, $f: Float, $id: ID, $ids: [ID!], $v: Visibility, $in: Filter) { echo(string: null, int: $i, float: $f, id: $id, ids: $ids, visibility: $v, filter: $in) }`,
			`{"i": 5, "f": 5, "id": 9007199254740991, "ids": "one", "v": "OLD", "in": {"must": 3, "tags": ["a"], "range": {"day": 1}}}`,
			`map[filter:map[must:3 range:map[day:1] tags:[a] text:any visibility:PUBLIC] float:5 id:9007199254740991 ids:[one] int:5 string:<nil> visibility:OLD]`},
		{"a variable left out is an argument left out", `query($s: String, $i: Int) { echo(string: $s, int: $i, filter: {must: 1, text: $s, visibility: null}) }`, ``,
			`map[filter:map[must:1 text:any visibility:<nil>] string:dflt]`},
		{"a null variable is null", `query($s: String) { echo(string: $s) }`, `{"s": null}`, `map[string:<nil>]`},
		{"defaults of variables", `query($i: Int = 4, $must: Int! = 6) { echo(string: null, int: $i, filter: {must: $must}) }`, ``,
			`map[filter:map[must:6 text:any visibility:PUBLIC] int:4 string:<nil>]`},
		{"variables in lists", `query($a: ID!) { echo(string: null, ids: ["x", $a]) }`, `{"a": "y"}`, `map[ids:[x y] string:<nil>]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, arguments(t, e, tc.query, variables(t, tc.variables)))
		})
	}
}

func TestRequestErrors(t *testing.T) {
	e := newEngine(t, nil)
	for _, tc := range []struct{ name, query, variables, code, message string }{
		{"no query", ``, ``, CodeBadUserInput, `the request has no query`},
		{"only blanks", ` `, ``, CodeParseFailed, `the document has no operation`},
		{"only a fragment", `fragment F on Post { id }`, ``, CodeParseFailed, `the document has no operation`},
		{"syntax", `{ old `, ``, CodeParseFailed, `Expected Name, found <EOF>`},
		{"lexis", "{ \x00 }", ``, CodeParseFailed, `Cannot contain the invalid character`},
		{"unknown field", `{ odl }`, ``, CodeValidationFailed, `Cannot query field "odl" on type "Query".`},
		{"fragment cycle", `{ posts { ...A } } fragment A on Post { author { ...B } } fragment B on User { posts { nodes { ...A } } }`, ``, CodeValidationFailed, `Cannot spread fragment "A" within itself via "B".`},
		{"two root fields of a subscription", `subscription { a: events { __typename } b: events { __typename } }`, ``, CodeValidationFailed, `a subscription must select exactly one top level field, this selects 2`},
		{"no root field of a subscription", `subscription { a: events @skip(if: true) { __typename } }`, ``, CodeValidationFailed, `a subscription must select exactly one top level field, this selects 0`},
		{"which operation", `query A { old } query B { old }`, ``, CodeBadUserInput, `the document has several operations: operationName must name one`},
		{"required variable", `query($n: Int!) { must(n: $n) }`, ``, CodeBadUserInput, `variable $n: a value of type Int! is required`},
		{"null variable", `query($n: Int!) { must(n: $n) }`, `{"n": null}`, CodeBadUserInput, `variable $n: a value of type Int! is required`},
		{"null for a default", `query($n: Int = 1) { must(n: $n) }`, `{"n": null}`, CodeBadUserInput, `argument n: a value of type Int! is required`},
		{"null condition", `query($c: Boolean = true) { old @skip(if: $c) }`, `{"c": null}`, CodeBadUserInput, `argument if: a value of type Boolean! is required`},
		{"wrong type", `query($n: Int!) { must(n: $n) }`, `{"n": "1"}`, CodeBadUserInput, `variable $n: Int cannot represent "1"`},
		{"fraction", `query($n: Int!) { must(n: $n) }`, `{"n": 1.5}`, CodeBadUserInput, `variable $n: Int cannot represent 1.5`},
		{"33 bits", `query($n: Int!) { must(n: $n) }`, `{"n": 2147483648}`, CodeBadUserInput, `variable $n: Int cannot represent 2147483648: it has more than 32 bits`},
		{"33 bits written", `{ must(n: -2147483649) }`, ``, CodeBadUserInput, `argument n: Int cannot represent -2147483649: it has more than 32 bits`},
		{"65 bits written", `{ must(n: 99999999999999999999) }`, ``, CodeBadUserInput, `Int cannot represent non 32-bit signed integer value: 99999999999999999999`},
		{"wrong literal", `{ must(n: "1") }`, ``, CodeValidationFailed, `Int cannot represent non-integer value: "1"`},
		{"enum", `query($v: Visibility) { echo(visibility: $v) }`, `{"v": "public"}`, CodeBadUserInput, `variable $v: Visibility cannot represent "public"`},
		{"enum of number", `query($v: Visibility) { echo(visibility: $v) }`, `{"v": 1}`, CodeBadUserInput, `variable $v: Visibility cannot represent 1`},
		{"boolean", `query($v: Boolean) { echo(bool: $v) }`, `{"v": "true"}`, CodeBadUserInput, `variable $v: Boolean cannot represent "true"`},
		{"string", `query($v: String) { echo(string: $v) }`, `{"v": ["x"]}`, CodeBadUserInput, `variable $v: String cannot represent a list`},
		{"rounded id", `query($v: ID) { echo(id: $v) }`, `{"v": 9007199254740993}`, CodeBadUserInput, `variable $v: ID cannot represent 9.007199254740992e+15`},
		{"custom scalar", `query($v: Time) { echo(time: $v) }`, `{"v": {}}`, CodeBadUserInput, `variable $v: Time cannot represent an object`},
		{"custom scalar written", `{ echo(time: 5) }`, ``, CodeBadUserInput, `argument time: Time cannot represent 5`},
		{"item of a list", `query($v: [ID!]) { echo(ids: $v) }`, `{"v": ["a", null]}`, CodeBadUserInput, `variable $v[1]: a value of type ID! is required`},
		{"input object", `query($v: Filter) { echo(filter: $v) }`, `{"v": 1}`, CodeBadUserInput, `variable $v: Filter must be an object`},
		{"unknown input field", `query($v: Filter) { echo(filter: $v) }`, `{"v": {"must": 1, "x": 1}}`, CodeBadUserInput, `variable $v: Filter has no field "x"`},
		{"nested input field", `query($v: Filter) { echo(filter: $v) }`, `{"v": {"must": 1, "nested": {"must": 1, "tags": ["a", 2]}}}`, CodeBadUserInput, `variable $v.nested.tags[1]: String cannot represent 2`},
		{"missing input field", `query($v: Filter) { echo(filter: $v) }`, `{"v": {"must": 1, "nested": {}}}`, CodeBadUserInput, `variable $v.nested.must: a value of type Int! is required`},
		{"one of two", `query($v: Filter) { echo(filter: $v) }`, `{"v": {"must": 1, "range": {"day": 1, "week": 2}}}`, CodeBadUserInput, `variable $v.range: Range must have exactly one field`},
		{"null in a literal", `query($i: ID = "d") { echo(ids: ["a", $i]) }`, `{"i": null}`, CodeBadUserInput, `argument ids[1]: a value of type ID! is required`},
		{"a long value", `query($n: Int!) { must(n: $n) }`, `{"n": "` + strings.Repeat("x", 60) + `"}`, CodeBadUserInput, `variable $n: Int cannot represent "` + strings.Repeat("x", 50) + `…"`},
		{"object for a scalar", `{ echo(ids: {}) }`, ``, CodeBadUserInput, `argument ids: ID cannot represent {}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			op, errs := e.Prepare(t.Context(), Request{Query: tc.query, Variables: variables(t, tc.variables)})
			require.Nil(t, op)
			require.NotEmpty(t, errs)
			require.Contains(t, errs[0].Message, tc.message)
			require.Equal(t, tc.code, errs[0].Extensions["code"])
			b, err := Response{Errors: errs}.MarshalJSON()
			require.NoError(t, err)
			require.NotContains(t, string(b), `"data"`)
		})
	}
	_, errs := e.Prepare(t.Context(), Request{Query: `query A { old }`, OperationName: "B"})
	require.Equal(t, `the document has no operation "B"`, errs[0].Message)
	_, errs = e.Prepare(t.Context(), Request{Extensions: map[string]any{"persistedQuery": map[string]any{"sha256Hash": "x"}}})
	require.Equal(t, "PersistedQueryNotSupported", errs[0].Message)
	require.Equal(t, "PERSISTED_QUERY_NOT_SUPPORTED", errs[0].Extensions["code"])
}

func TestVariablesMayComeAsJSONNumbers(t *testing.T) {
	e := newEngine(t, nil)
	for _, v := range []any{json.Number("12"), 12, int32(12), int64(12), 12.0} {
		got := arguments(t, e, `query($i: Int, $f: Float, $id: ID) { echo(string: null, int: $i, float: $f, id: $id) }`,
			map[string]any{"i": v, "f": v, "id": v})
		require.Equal(t, `map[float:12 id:12 int:12 string:<nil>]`, got)
	}
	_, errs := e.Prepare(t.Context(), Request{Query: `query($f: Float) { echo(float: $f) }`,
		Variables: map[string]any{"f": json.Number("1e999")}})
	require.Len(t, errs, 1)
}

func TestVariablesAreNotChanged(t *testing.T) {
	e := newEngine(t, nil)
	given := variables(t, `{"v": {"must": 1, "tags": ["a"], "nested": {"must": 2}}}`)
	arguments(t, e, `query($v: Filter) { echo(filter: $v) }`, given)
	require.Equal(t, variables(t, `{"v": {"must": 1, "tags": ["a"], "nested": {"must": 2}}}`), given)
}

func TestLimits(t *testing.T) {
	e := newEngine(t, nil, func(c *Config) {
		c.Limits = Limits{DocumentBytes: 6000, Tokens: 1500, Depth: 4, Aliases: 3, Directives: 2, Cost: 1000}
	})
	aliases := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "a%d: old ", i)
		}
		return b.String()
	}
	bomb := `{ posts { ...F0 } }`
	for i := range 50 {
		bomb += fmt.Sprintf(" fragment F%d on Post { author { posts { nodes { ...F%d } } } friend { posts { nodes { ...F%[2]d } } } }", i, i+1)
	}
	bomb = strings.ReplaceAll(bomb, "...F50", "id")
	for _, tc := range []struct {
		name, limit string
		fits, fails string
		variables   [2]string
	}{
		{name: "bytes", limit: "bytes", fits: "{old}" + strings.Repeat(" ", 5995), fails: "{old}" + strings.Repeat(" ", 5996)},
		{name: "tokens", limit: "tokens", fits: "{" + strings.Repeat("...{old} ...{panics}", 187) + "old old}", fails: "{" + strings.Repeat("...{old} ...{panics}", 187) + "old old old}"},
		{name: "depth", limit: "depth", fits: `{ posts { author { posts { total } } } }`, fails: `{ posts { author { posts { nodes { id } } } } }`},
		{name: "depth by fragments", limit: "depth",
			fits:  `{ posts { ...A } } fragment A on Post { author { ...B } } fragment B on User { posts { total } }`,
			fails: `{ posts { ...A } } fragment A on Post { author { ...B } } fragment B on User { posts { nodes { id } } }`},
		{name: "aliases", limit: "aliases", fits: "{" + aliases(3) + "}", fails: "{" + aliases(4) + "}"},
		{name: "directives", limit: "directives", fits: `{ old @skip(if: false) @include(if: true) }`, fails: `query @skip(if: true) { old @skip(if: false) @include(if: true) }`},
		{name: "nesting", limit: "nesting", fits: `{ echo(matrix: ` + strings.Repeat("[", 98) + strings.Repeat("]", 98) + `) }`,
			fails: `{ echo(matrix: ` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `) }`},
		{name: "repeats", limit: "repeats", fits: "{" + strings.Repeat("old ", 200) + "}", fails: "{" + strings.Repeat("old ", 201) + "}"},
		{name: "brace bomb", limit: "nesting", fits: `{ old }`, fails: strings.Repeat("{a", 300)},
		{name: "fragment bomb", limit: "cost", fits: `{ old }`, fails: bomb},
		{name: "page", limit: "cost", fits: `{ posts(first: 333) { id text likes } }`, fails: `{ posts(first: 334) { id text likes } }`},
		{name: "page by variable", limit: "cost", fits: `query($n: Int) { posts(first: $n) { id text likes } }`, fails: `query($n: Int) { posts(first: $n) { id text likes } }`,
			variables: [2]string{`{"n": 333}`, `{"n": 2147483647}`}},
		{name: "default page", limit: "cost", fits: `{ posts { replies { id } author { id } } }`, fails: `{ posts { replies { author { id age } } } }`},
		{name: "connection counts once", limit: "cost", fits: `{ feed(last: 30) { edges { node { id } } } }`, fails: `{ feed(last: 334) { edges { node { id } } } }`},
		{name: "introspection", limit: "cost", fits: `{ __schema { types { fields { name } } } }`, fails: `{ a: __schema { description } b: __schema { description } }`},
		{name: "list argument", limit: "cost", fits: `{ nodes(ids: [1, 2]) { ... on User { posts { total } } } }`,
			fails: `{ nodes(ids: [` + strings.Repeat("1 ", 100) + `]) { ... on User { posts(first: 10) { total } } } }`},
		{name: "excluded fields cost nothing", limit: "cost", fits: `{ old ... @include(if: false) { posts(first: 5000) { id } } }`, fails: `{ old ... @include(if: true) { posts(first: 5000) { id } } }`},
		{name: "fragments cost wherever they are spread", limit: "cost", fits: `{ posts(first: 100) { ...F } } fragment F on Post { id text likes }`,
			fails: `{ posts(first: 100) { ...F } b: posts(first: 300) { ...F } } fragment F on Post { id text likes }`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, errs := e.Prepare(t.Context(), Request{Query: tc.fits, Variables: variables(t, tc.variables[0])})
			for _, err := range errs { // the nested list is not a [[Int]], which is fine here
				require.NotEqual(t, CodeTooComplex, err.Extensions["code"], err)
			}
			_, errs = e.Prepare(t.Context(), Request{Query: tc.fails, Variables: variables(t, tc.variables[1])})
			require.Len(t, errs, 1)
			require.Equal(t, CodeTooComplex, errs[0].Extensions["code"])
			require.Equal(t, tc.limit, errs[0].Extensions["limit"], errs)
			require.NotNil(t, errs[0].Extensions["allowed"])
		})
	}
}

func TestValidationErrorsAreBounded(t *testing.T) {
	query := `{ a b c d e f g h i j k l odl }`
	_, errs := newEngine(t, nil).Prepare(t.Context(), Request{Query: query})
	require.Len(t, errs, 10)

	for _, suggestions := range []bool{false, true} {
		e := newEngine(t, nil, func(c *Config) { c.Suggestions = suggestions })
		_, errs := e.Prepare(t.Context(), Request{Query: `{ odl echo(strng: "") { x } node(id: 1) { ... on Usr { id } } }`})
		require.Len(t, errs, 5)
		require.Equal(t, suggestions, strings.Contains(errs.Error(), "Did you mean"), errs)
	}
}

func TestDocumentsAreRemembered(t *testing.T) {
	e := newEngine(t, nil, func(c *Config) { c.Limits.CacheBytes = 3 * 10 * bytesPerQueryByte })
	load := func(text string) *document {
		doc, errs := e.load(t.Context(), text)
		require.Nil(t, errs)
		return doc
	}
	a := load("{ old    }")
	load("{ old   } ")
	require.Same(t, a, load("{ old    }"))
	load("{ old  }  ")
	load("{ old }   ") // evicts the second document, the least recently used
	require.Same(t, a, load("{ old    }"))
	remembered := func(text string) bool {
		_, ok := e.cache.Get(text)
		return ok
	}
	require.False(t, remembered("{ old   } "))
	require.True(t, remembered("{ old  }  "))
	require.True(t, remembered("{ old }   "))
	require.True(t, remembered("{ old    }"))

	_, errs := e.load(t.Context(), "{ bad  }  ")
	require.NotNil(t, errs)
	require.False(t, remembered("{ bad  }  "))
}

func FuzzPrepare(f *testing.F) {
	for _, query := range []string{
		`{ posts(first: 3) { id author { ...U } } } fragment U on User { handle posts { edges { node { id } } } }`,
		`query Q($v: Filter, $b: Boolean!) { echo(filter: $v) old @skip(if: $b) }`,
		`mutation { step(n: 1) { later } }`, `subscription { events { ... on User { id } } }`,
		`{ __schema { types { name ofType { name } } } __type(name: "Query") { fields { name } } }`,
		`{ echo(filter: {must: 1, nested: {must: 2}}, ids: [1, "x"], matrix: [[1]], time: "x") }`,
		"\"\"\"\n", `{ a: posts { ...F } } fragment F on Post { ...F }`, `{ nodes(ids: []) { __typename } found { ... on Node { id } } }`,
	} {
		f.Add(query, `{"v": {"must": 1}, "b": true}`)
	}
	e := newEngine(f, nil, func(c *Config) { c.Suggestions = true })
	f.Fuzz(func(t *testing.T, query, vars string) {
		var variables map[string]any
		_ = json.Unmarshal([]byte(vars), &variables)
		op, errs := e.Prepare(t.Context(), Request{Query: query, Variables: variables})
		for _, err := range errs {
			require.NotEmpty(t, err.Extensions["code"])
			require.NotEqual(t, CodeInternal, err.Extensions["code"], err)
		}
		require.Equal(t, errs == nil, op != nil)
		if op != nil {
			require.NotNil(t, op.RootFields())
		}
	})
}

func TestCostAndCheck(t *testing.T) {
	e := newEngine(t, nil)
	op, errs := e.Prepare(t.Context(), Request{Query: `{ posts(first: 10) { id likes } }`})
	require.Empty(t, errs)
	require.Equal(t, 21, op.Cost())
	cost := func(e *Engine, query, variables string) int {
		t.Helper()
		var values map[string]any
		require.NoError(t, json.Unmarshal([]byte(variables), &values))
		op, errs := e.Prepare(t.Context(), Request{Query: query, Variables: values})
		require.Empty(t, errs, query)
		return op.Cost()
	}
	priced := newEngine(t, nil, func(c *Config) {
		c.Prices = map[string]func(map[string]any) int{
			"User.posts": func(arguments map[string]any) int {
				if first, _ := arguments["first"].(int); first > 5 {
					return 500
				}
				return 30
			},
			"Query.old": func(map[string]any) int { return 7 },
		}
		c.PagePrice = 20
	})
	for query, want := range map[string]int{
		`{ old }`: 1 + 7,
		`{ old a: old ...F } fragment F on Query { b: old }`:                                                                        3 * (1 + 7),
		`{ posts(first: 10) { id } more: posts(first: 1) { id } }`:                                                                  1 + 20 + 10 + 1 + 20 + 1,
		`{ posts(first: 10) { author { ...F } } } fragment F on User { posts(first: 2) { total } }`:                                 1 + 20 + 10*(1+30+1+2),
		`{ posts(first: 5) { author { ...F } } } fragment F on User { posts(first: 6) { total } again: posts(first: 6) { total } }`: 1 + 20 + 5*(1+2*(500+1+6)),
		`{ nodes(ids: ["a", "b"]) { ... on User { posts(first: 2) { total } } } }`:                                                  1 + 2*(30+1+2),
	} {
		require.Equal(t, want, cost(priced, query, "{}"), query)
	}
	byVariable := `query($n: Int) { nodes(ids: ["a"]) { ... on User { posts(first: $n) { total } } } }`
	require.Equal(t, 1+1+30+2, cost(priced, byVariable, `{"n": 2}`))
	require.Equal(t, 1+1+500+6, cost(priced, byVariable, `{"n": 6}`))

	shared := newEngine(t, nil, func(c *Config) { c.SharedPrices = map[string]int{"Post.likes": 50, "Step.later": 60} })
	require.Equal(t, 1+10*4+1+1+50, cost(shared, `{ posts(first: 10) { id likes again: likes ...F } more: posts(first: 1) { ...F } } fragment F on Post { l: likes }`, "{}"),
		"a query pays a shared price once")
	require.Equal(t, 3*(1+1)+4*60+1, cost(shared, `mutation { a: step(n: 1) { later } b: step(n: 2) { ...S } c: step(n: 3) { later x: later } } fragment S on Step { later }`, "{}"),
		"a mutation pays it each time")
	for name, prices := range map[string]int{"Post.none": 5, "None.likes": 5, "Post": 5, "Post.likes": 0} {
		_, err := New(Config{Schema: priced.cfg.Schema, SharedPrices: map[string]int{name: prices}})
		require.Error(t, err, name)
		if prices > 0 {
			_, err = New(Config{Schema: priced.cfg.Schema, Prices: map[string]func(map[string]any) int{name: func(map[string]any) int { return 1 }}})
			require.Error(t, err, name)
		}
	}
	require.Empty(t, e.Check(t.Context(), `query($n: Int!) { must(n: $n) }`), "without its variables")
	require.NotEmpty(t, e.Check(t.Context(), `{ odl }`))
}
