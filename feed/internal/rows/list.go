package rows

import (
	"encoding/json"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// A list of values is one parameter of a statement, so that the database plans the statement once
// and not for each number of values. PostgreSQL must not see the length of the list either. It
// assumes ten values for an unknown list, and would plan each statement of a shorter list anew,
// which takes several times as long as reading the rows.

// In returns the SQL condition that the column before it is one of the values of a list. element is
// the values' type in PostgreSQL. The argument is the result of List.
func In(of, parameter, element string) string {
	if of == dialect.SQLite {
		return "IN (SELECT value FROM json_each(" + parameter + "))"
	}
	return "= ANY(" + Array(parameter, element) + ")"
}

// Each returns the SQL table u, whose column value has the ids of a list. The argument is the
// result of List.
func Each(of, parameter string) string {
	if of == dialect.SQLite {
		return "json_each(" + parameter + ") u"
	}
	return "unnest(" + Array(parameter, "bigint") + ") u(value)"
}

// Array returns the PostgreSQL expression of a list whose length is hidden from the planner.
func Array(parameter, element string) string {
	return "CAST((SELECT CAST(" + parameter + " AS " + element + "[])) AS " + element + "[])"
}

// List returns the argument for a list of values.
func List[T int64 | string](of string, values []T) any {
	if of == dialect.SQLite {
		return JSON(values)
	}
	return values
}

// JSON encodes a list of values for SQLite.
func JSON[T int64 | string](values []T) string {
	list, _ := json.Marshal(values) // numbers and strings always marshal
	return string(list)
}

// Among matches rows whose column is one of the ids.
func Among(column string, ids []int64) func(*sql.Selector) {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.Ident(s.C(column)).WriteString(" ")
			WriteIn(b, "bigint", List(s.Dialect(), ids))
		}))
	}
}

// WriteIn writes the condition In with the list as its argument.
func WriteIn(b *sql.Builder, element string, list any) {
	const parameter = "$list"
	before, after, _ := strings.Cut(In(b.Dialect(), parameter, element), parameter)
	b.WriteString(before).Arg(list).WriteString(after)
}
