package bulk

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/feed/internal/text"
	"tideline/internal/errs"
)

// data is the app's own fields of a user or a post, as a row of a statement.
type data struct {
	Owner int64  `json:"a"` // the id of the user or the post
	Data  string `json:"b"`
}

// cleanData returns the data in canonical form, or nil if none is given.
func cleanData(given *string) (*string, error) {
	if given == nil {
		return nil, nil
	}
	clean, err := text.Data(*given)
	return &clean, err
}

// keepData replaces the app's own fields of users or posts. ent.NoData deletes them. The table is
// user_data or post_data, and the column is its id of the user or the post. keepData reorders and
// shortens list.
//
// The caller has locked the users, or has inserted the users or posts in tx. So no other transaction
// writes the same rows at the same time, and there can be no deadlock.
func (b *Bulk) keepData(ctx context.Context, tx *ent.Tx, table, column string, list []data) error {
	slices.SortFunc(list, func(a, b data) int { return int(a.Owner - b.Owner) })
	deleted := slices.DeleteFunc(slices.Clone(list), func(d data) bool { return d.Data != ent.NoData })
	stored := slices.DeleteFunc(list, func(d data) bool { return d.Data == ent.NoData })
	if len(deleted) > 0 {
		if err := exec(ctx, tx, fmt.Sprintf("DELETE FROM %s WHERE %s IN (SELECT r.a FROM %s)", table, column, b.table("a bigint", "b text")), deleted); err != nil {
			return fmt.Errorf("delete data: %w", err)
		}
	}
	if len(stored) == 0 {
		return nil
	}
	err := exec(ctx, tx, fmt.Sprintf("INSERT INTO %[1]s (%[2]s, data) SELECT r.a, r.b FROM %[3]s WHERE TRUE ON CONFLICT (%[2]s) DO UPDATE SET data = excluded.data",
		table, column, b.table("a bigint", "b text")), stored)
	return errs.Wrap(err, "store data")
}
