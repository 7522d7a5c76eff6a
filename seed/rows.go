package seed

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	entsql "entgo.io/ent/dialect/sql"
)

// chunk is how many rows or values one statement has. It is about the fastest size on both databases, and
// below their limits on parameters.
const chunk = 1000

// writer writes rows in bulk.
type writer struct {
	dialect string
	db      interface { // *sql.DB or *sql.Tx
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
}

// insert inserts the rows in order and returns how many it inserted. unless names the columns of a unique
// index; rows that exist there are skipped.
func (w writer) insert(ctx context.Context, table string, columns []string, rows [][]any, unless ...string) (int, error) {
	added := 0
	for some := range slices.Chunk(rows, chunk) {
		insert := entsql.Dialect(w.dialect).Insert(table).Columns(columns...)
		for _, row := range some {
			insert.Values(row...)
		}
		if len(unless) > 0 {
			insert.OnConflict(entsql.ConflictColumns(unless...), entsql.DoNothing())
		}
		query, args := insert.Query()
		result, err := w.db.ExecContext(ctx, query, args...)
		if err != nil {
			return added, fmt.Errorf("insert into %s: %w", table, err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return added, fmt.Errorf("insert into %s: %w", table, err)
		}
		added += int(n)
	}
	return added, nil
}

// values converts a list for a condition of the query builder.
func values[T any](list []T) []any {
	all := make([]any, len(list))
	for i, v := range list {
		all[i] = v
	}
	return all
}

// handlesIn returns the ids of the users who have one of the handles, by handle.
func handlesIn(ctx context.Context, db *sql.DB, dialect string, handles []string) (map[string]int64, error) {
	found := make(map[string]int64, len(handles))
	for some := range slices.Chunk(handles, chunk) {
		query, args := entsql.Dialect(dialect).Select("id", "handle").From(entsql.Table("users")).
			Where(entsql.In("handle", values(some)...)).Query()
		if err := scanHandles(ctx, db, found, query, args); err != nil {
			return nil, fmt.Errorf("look up handles: %w", err)
		}
	}
	return found, nil
}

func scanHandles(ctx context.Context, db *sql.DB, into map[string]int64, query string, args []any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var handle string
		if err := rows.Scan(&id, &handle); err != nil {
			return err
		}
		into[handle] = id
	}
	return rows.Err()
}
