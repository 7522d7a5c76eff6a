package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/feed/internal/rows"
	"tideline/feed/tag"
)

// compareTags compares the stored tags of posts with the tags of their texts, for posts with ids above
// after and up to last. It returns the number of posts that differ. With repair, it corrects the
// tags and returns the number of posts that it corrected.
func (c *Recounter) compareTags(ctx context.Context, after, last int64, repair bool) (int, error) {
	found, err := c.db.QueryContext(ctx, "SELECT p.id, p.text, coalesce((SELECT string_agg(t.tag, ' ') FROM post_tags t WHERE t.post_id = p.id), '')"+
		" FROM posts p WHERE p.id > $1 AND p.id <= $2", after, last)
	if err != nil {
		return 0, fmt.Errorf("read tags: %w", err)
	}
	defer found.Close()
	var mistagged []int64
	for found.Next() {
		var id int64
		var text, tags string
		if err := found.Scan(&id, &text, &tags); err != nil {
			return 0, fmt.Errorf("read tags: %w", err)
		}
		stored, correct := strings.Fields(tags), tag.In(text)
		slices.Sort(stored)
		slices.Sort(correct)
		if !slices.Equal(stored, correct) {
			mistagged = append(mistagged, id)
		}
	}
	if err := errors.Join(found.Err(), found.Close()); err != nil {
		return 0, fmt.Errorf("read tags: %w", err)
	}
	n := len(mistagged)
	if n == 0 || !repair {
		return n, nil
	}
	err = rows.InTx(ctx, c.db, func(tx *ent.Tx) error {
		// Other transactions may have changed texts and tags since the comparison, but not under this
		// lock. So the texts are read with the lock, and Keep reads the tags.
		locked, err := tx.Post.Query().Where(rows.Among(post.FieldID, mistagged), rows.ForUpdate).Order(ent.Asc(post.FieldID)).All(ctx)
		if err != nil {
			return fmt.Errorf("lock posts: %w", err)
		}
		n, err = tag.Keep(ctx, tx, locked...)
		return err
	})
	return n, err
}
