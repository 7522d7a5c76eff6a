// Package rows holds the SQL that the packages of feed share: many ids as one parameter, rows in
// the order of their ids, lists of ids, counters, transactions and row locks.
package rows

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/internal/errs"
)

// InOrder arranges rows in the order of ids, with nil for ids that have no row.
func InOrder[T any](ids []int64, rows []*T, id func(*T) int64) []*T {
	byID := make(map[int64]*T, len(rows))
	for _, row := range rows {
		byID[id(row)] = row
	}
	list := make([]*T, len(ids))
	for i := range ids {
		list[i] = byID[ids[i]]
	}
	return list
}

// IDs returns the column id of a query. The query returns all ids in one row, because thousands of
// rows take longer to receive than to find.
func IDs(ctx context.Context, db *ent.Client, query string, args ...any) ([]int64, error) {
	found, err := db.QueryContext(ctx, "SELECT string_agg(CAST(id AS TEXT), ',') FROM ("+query+") ids", args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var list stdsql.NullString
	if found.Next() {
		err = found.Scan(&list)
	}
	if err = errors.Join(err, found.Err()); err != nil || !list.Valid {
		return nil, err
	}
	var ids []int64
	for text := range strings.SplitSeq(list.String, ",") {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Map returns of(element) for each element, in order.
func Map[E, V any](list []E, of func(E) V) []V {
	values := make([]V, len(list))
	for i, element := range list {
		values[i] = of(element)
	}
	return values
}

// PostIDs returns the ids of the posts, in their order.
func PostIDs(posts []*ent.Post) []int64 {
	return Map(posts, func(p *ent.Post) int64 { return p.ID })
}

// Without returns the ids that are not among others.
func Without(ids, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(others, id) })
}

// Cut returns the ordered ids up to their last gap, and an id in the middle of that gap. The ids
// behind the gap belong to the next page. So a client that reads the id in a cursor does not learn
// of a row that it may not see. Ids without a gap stay as they are; hundreds of rows do not get
// consecutive ids.
func Cut(ids []int64) (near []int64, between int64) {
	for n := len(ids) - 1; n > 0; n-- {
		a, b := ids[n-1], ids[n]
		if gap := max(a, b) - min(a, b); gap > 1 {
			return ids[:n], min(a, b) + gap/2
		}
	}
	return ids, ids[len(ids)-1]
}

// InTx runs fn in a transaction. It commits if fn returns nil, and otherwise rolls back. It also
// rolls back if fn panics, because the server goes on after a panic, and on SQLite no other
// transaction can begin before this one ends. If the database undoes the transaction in favour of
// others (see Undone), InTx runs it once more, from the beginning of fn.
func InTx(ctx context.Context, db *ent.Client, fn func(tx *ent.Tx) error) error {
	err := inTx(ctx, db, fn)
	if Undone(err) { // the transactions that it conflicted with are done by now
		err = inTx(ctx, db, fn)
	}
	return err
}

func inTx(ctx context.Context, db *ent.Client, fn func(tx *ent.Tx) error) (err error) {
	tx, err := db.Tx(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if done {
			return
		}
		if undone := tx.Rollback(); undone != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", undone))
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	return errs.Wrap(tx.Commit(), "commit")
}

// Undone reports whether PostgreSQL undid a transaction because of a deadlock or a serialization
// failure. It may succeed when it is tried again.
func Undone(err error) bool {
	var known interface {
		error
		SQLState() string
	}
	return errors.As(err, &known) && (known.SQLState() == "40P01" || known.SQLState() == "40001")
}

// ForUpdate locks the selected rows on PostgreSQL. SQLite has one writer at a time and needs no
// lock.
func ForUpdate(s *sql.Selector) {
	if s.Dialect() == dialect.Postgres {
		// Not FOR UPDATE, which waits for, and deadlocks with, every insert of a row that refers to
		// this one.
		s.For(sql.LockUpdate, sql.WithLockClause("FOR NO KEY UPDATE"))
	}
}

// ForDeletion is ForUpdate, and also keeps others from inserting rows that refer to the selected
// rows.
func ForDeletion(s *sql.Selector) {
	if s.Dialect() == dialect.Postgres {
		s.ForUpdate()
	}
}

// MayReturn reports whether a hidden user may become visible again, because the user is suspended
// or in the grace period of a deletion.
//
// Cost: a look-up by primary key.
func MayReturn(ctx context.Context, hidden *ent.HiddenUserClient, id int64) (bool, error) {
	found, err := hidden.Query().Where(hiddenuser.ID(id), hiddenuser.StateIn(hiddenuser.StateLEAVING, hiddenuser.StateSUSPENDED)).Exist(ctx)
	return found, errs.Wrap(err, "find hidden user")
}
