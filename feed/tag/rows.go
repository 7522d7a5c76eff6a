package tag

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/posttag"
	"tideline/feed/internal/rows"
)

// Keep makes the stored tags of the posts equal to the tags of their texts. The caller has locked
// the posts. Keep returns the number of posts whose tags it changed.
//
// Cost: one query, with an index look-up for each post. If tags change, one deletion, and one insert
// for each thousand new tags.
func Keep(ctx context.Context, tx *ent.Tx, posts ...*ent.Post) (changed int, err error) {
	list, err := tx.PostTag.Query().Where(rows.Among(posttag.FieldPostID, rows.PostIDs(posts))).All(ctx)
	if err != nil {
		return 0, fmt.Errorf("read tags: %w", err)
	}
	stored := map[int64][]*ent.PostTag{} // by post
	for _, row := range list {
		stored[row.PostID] = append(stored[row.PostID], row)
	}
	var gone []int64
	var create []*ent.PostTagCreate
	for _, p := range posts {
		tags, before := In(p.Text), len(gone)+len(create)
		for _, row := range stored[p.ID] {
			if !slices.Contains(tags, row.Tag) {
				gone = append(gone, row.ID)
			}
		}
		for _, tag := range tags {
			if !slices.ContainsFunc(stored[p.ID], func(row *ent.PostTag) bool { return row.Tag == tag }) {
				create = append(create, tx.PostTag.Create().SetPostID(p.ID).SetTag(tag))
			}
		}
		if len(gone)+len(create) > before {
			changed++
		}
	}
	if len(gone) > 0 {
		if _, err := tx.PostTag.Delete().Where(rows.Among(posttag.FieldID, gone)).Exec(ctx); err != nil {
			return 0, fmt.Errorf("delete tags: %w", err)
		}
	}
	for chunk := range slices.Chunk(create, 1000) {
		if err := tx.PostTag.CreateBulk(chunk...).Exec(ctx); err != nil {
			return 0, fmt.Errorf("create tags: %w", err)
		}
	}
	return changed, nil
}
