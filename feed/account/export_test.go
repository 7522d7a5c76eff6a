package account

import (
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
)

// Statement is an SQL statement with its arguments.
type Statement struct {
	SQL  string
	Args []any
}

// SearchStatements returns the statements of a search, except the query for the users of its
// page, and the statement with which IndexNames finds users.
func SearchStatements(of string, users []int64) []Statement {
	return []Statement{
		{wordRange, []any{[]byte("early"), after("early")}},
		{usersWith(of, "early"), []any{rows.List(of, users), []byte("early")}},
		{"SELECT id FROM users WHERE " + schema.Unindexed + " ORDER BY id LIMIT 10", nil},
	}
}
