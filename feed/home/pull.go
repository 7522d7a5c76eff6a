package home

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"

	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// pulled is the source of a home timeline without an inbox: fan-out on read. It
// looks up the newest post in the range, the head, of every followee. Then it reads
// posts only of the authors who can reach the batch: the heads, as many as the
// limit, end with an id below which the batch has no post. A head may be hidden;
// the posts behind it may not be.
//
// Cost: two queries. One look-up a followee by primary key, and one more in the
// index of posts for each who also posted beyond the near end of the range, which
// nobody did of a first page; then at most as many posts as the limit of each
// visibility of as many authors, and whether these follow the user.
func pulled(h *Home, user int64) visibility.Source {
	// An array, not a join: its cost does not depend on the database's estimate of
	// the number of users. A correlated query costs a fifth more.
	among := "IN (%s)"
	if h.cfg.Dialect == dialect.Postgres {
		among = "= ANY (ARRAY(%s))"
	}
	heads := `
SELECT h.id, h.head, coalesce((SELECT 1 FROM follows r WHERE r.follower_id = h.id AND r.followee_id = $1), 0) FROM (
  SELECT u.id, CASE WHEN u.last_post_id %[1]s
      ELSE coalesce((SELECT %[2]s(p.id) FROM posts p WHERE p.author_id = u.id AND p.id > $2 AND p.id < $3), %[3]s) END AS head
  FROM users u WHERE u.id ` + fmt.Sprintf(among, sourcesOf) + ` ORDER BY head %[4]s LIMIT $4
) h ORDER BY h.head %[4]s`
	newest := fmt.Sprintf(heads, "< $3 THEN u.last_post_id", "max", "0", "DESC")
	oldest := fmt.Sprintf(heads, "<= $2 THEN $3", "min", "$3", "ASC")
	return func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		query := newest
		if r.Ascending {
			query = oldest
		}
		found, err := h.db.QueryContext(ctx, query, user, r.After, r.Upper(), r.Limit)
		if err != nil {
			return visibility.Batch{}, fmt.Errorf("read newest posts of followees: %w", err)
		}
		defer found.Close()
		var authors []visibility.Followee
		last := int64(0)
		for found.Next() {
			var author visibility.Followee
			var head int64
			if err := found.Scan(&author.ID, &head, &author.FollowsBack); err != nil {
				return visibility.Batch{}, fmt.Errorf("read newest posts of followees: %w", err)
			}
			if r.After < head && head < r.Upper() { // otherwise the range has none
				authors, last = append(authors, author), head
			}
		}
		if err := found.Err(); err != nil || len(authors) == 0 {
			return visibility.Batch{}, rows.Wrap("read newest posts of followees", err)
		}
		full := len(authors) == r.Limit
		if full { // the limit lies between here and the last head, hidden posts included
			if r.Ascending {
				r.Before = last + 1
			} else {
				r.After = last - 1
			}
		}
		b, err := h.posts.ByFollowees(ctx, viewer, authors, r)
		if err == nil && full && !b.More {
			b.Last, b.More = last, true
		}
		return b, err
	}
}
