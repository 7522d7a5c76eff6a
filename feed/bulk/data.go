package bulk

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
)

// data is a row of the app's own fields in a user or a post.
type data struct {
	Of   int64  `json:"a"`
	Data string `json:"b"`
}

// cleanData returns the data in canonical form, or nil if none is given.
func cleanData(given *string) (*string, error) {
	if given == nil {
		return nil, nil
	}
	clean, err := text.Data(*given)
	return &clean, err
}

// keepData replaces the stored data with the data of the rows. It writes in the order of ids, so
// that no two transactions wait for each other.
func (b *Bulk) keepData(ctx context.Context, tx *ent.Tx, table, column string, list []data) error {
	slices.SortFunc(list, func(a, b data) int { return int(a.Of - b.Of) })
	none := slices.DeleteFunc(slices.Clone(list), func(d data) bool { return d.Data != ent.NoData })
	some := slices.DeleteFunc(list, func(d data) bool { return d.Data == ent.NoData })
	if len(none) > 0 {
		if err := exec(ctx, tx, fmt.Sprintf("DELETE FROM %s WHERE %s IN (SELECT r.a FROM %s)", table, column, b.table("a bigint", "b text")), none); err != nil {
			return fmt.Errorf("take data: %w", err)
		}
	}
	if len(some) == 0 {
		return nil
	}
	err := exec(ctx, tx, fmt.Sprintf("INSERT INTO %[1]s (%[2]s, data) SELECT r.a, r.b FROM %[3]s WHERE TRUE ON CONFLICT (%[2]s) DO UPDATE SET data = excluded.data",
		table, column, b.table("a bigint", "b text")), some)
	return rows.Wrap("keep data", err)
}
