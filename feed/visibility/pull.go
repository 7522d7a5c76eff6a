package visibility

import (
	"context"
	"encoding/json"
	"fmt"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

// Home timelines are read in SQL whenever Redis does not have them, a moment after a user
// came first, or everybody at once. So these statements are written once, too.

// SourcesOf is the query of the authors of a home timeline: followees not muted, and the
// user, who is its only argument.
const SourcesOf = `SELECT followee_id AS id FROM follows
  WHERE follower_id = $1 AND followee_id NOT IN (SELECT muted_id FROM mutes WHERE muter_id = $1)
  UNION ALL SELECT id FROM users WHERE id = $1`

// ends are the statements that read the near ends of ranges: the newest ones first, and the
// oldest ones.
type ends struct {
	heads     [2]string // of authors; see headsOf
	posts     [2]string // of posts, for a viewer
	anonymous [2]string
	wordless  [2]string // without what no inbox asks for
}

func endsOf(of string) (e ends) {
	likes := selecting(of, flagsFor("$1", "p", true), wordsOf("$1"), Likes)
	anonymous := selecting(of, "$1 * 0 + "+flagsForAnyone("p"), "''", 0)
	for i, order := range []string{"DESC", "ASC"} {
		near := nearEnds(of, order)
		ids := fmt.Sprintf("IN (SELECT h.id %s) ORDER BY p.id %s LIMIT $4", near, order)
		e.posts[i], e.anonymous[i] = likes+ids, anonymous+ids
		e.wordless[i] = fmt.Sprintf("SELECT p.id, p.author_id, p.visibility, %d + %s FROM (SELECT h.id, h.author_id, h.visibility %s) p ORDER BY p.id %s",
			wordless, flagsFor("$1", "p", false), near, order)
	}
	e.heads[0] = headsOf(of, "< $3 THEN u.last_post_id", "max", "0", "DESC")
	e.heads[1] = headsOf(of, "<= $2 THEN $3", "min", "$3", "ASC")
	return e
}

// near is the one of two statements for a range.
func near(statements [2]string, in timeline.Range) string {
	if in.Ascending {
		return statements[1]
	}
	return statements[0]
}

// headsOf is the query of the authors with the nearest posts of a range; see Pulled. Its
// parameters are the user, the ends of the range, and the limit.
//
// The authors are an array, not a join: its cost does not depend on the database's estimate
// of the number of users. A correlated query costs a fifth more.
func headsOf(of, known, nearest, none, order string) string {
	among := "IN (" + SourcesOf + ")"
	if of == dialect.Postgres {
		among = "= ANY (ARRAY(" + SourcesOf + "))"
	}
	return fmt.Sprintf(`
SELECT h.id, h.head, coalesce((SELECT 1 FROM follows r WHERE r.follower_id = h.id AND r.followee_id = $1), 0) FROM (
  SELECT u.id, CASE WHEN u.last_post_id %[1]s
      ELSE coalesce((SELECT %[2]s(p.id) FROM posts p WHERE p.author_id = u.id AND p.id > $2 AND p.id < $3), %[3]s) END AS head
  FROM users u WHERE u.id %[5]s ORDER BY head %[4]s LIMIT $4
) h ORDER BY h.head %[4]s`, known, nearest, none, order, among)
}

// nearEnds takes the posts h from the near end of each of some ranges, and then as many of
// them as the limit. Otherwise the database goes through the posts of all authors, or through
// all hidden posts. Its parameters are the ends of a range ($2, $3), the limit, and the
// ranges as ranges.args has them.
func nearEnds(of, order string) string {
	end := func(columns, author, visibility string) string {
		return fmt.Sprintf("(SELECT %s FROM posts e WHERE e.author_id = %s AND e.visibility = %s AND e.id > $2 AND e.id < $3 ORDER BY e.id %s LIMIT $4)",
			columns, author, visibility, order)
	}
	from := "unnest(" + rows.Array("$5", "bigint") + ", " + rows.Array("$6", "text") + ") a(author, visibility) CROSS JOIN LATERAL " +
		end("e.id, e.author_id, e.visibility", "a.author", "a.visibility") + " h"
	if of != dialect.Postgres { // a JOIN is as good as LATERAL when the other side is IN what depends on this one
		from = "json_each($5) a CROSS JOIN posts h ON h.id IN " + end("e.id", "a.value ->> 0", "a.value ->> 1")
	}
	return "FROM " + from + " ORDER BY h.id " + order + " LIMIT $4"
}

// Pulled is the source of a user's home timeline without an inbox: fan-out on read. It
// looks up the newest post in the range, the head, of every followee. Then it reads
// posts only of the authors who can reach the batch: the heads, as many as the
// limit, end with an id below which the batch has no post. A head may be hidden;
// the posts behind it may not be. It leaves out most of the posts that are hidden from the
// viewer's home timeline.
//
// Cost: two queries. One look-up a followee by primary key, and one more in the
// index of posts for each who also posted beyond the near end of the range, which
// nobody did of a first page; then at most as many posts as the limit of each
// visibility of as many authors, and whether these follow the user.
func (r *Reader) Pulled(user int64) Source { return r.pulled(user, false) }

// PulledIDs is Pulled for the surface Inbox alone: of posts it has ids, authors and visibilities.
//
// Cost: as Pulled, of index entries instead of posts, and without likes, texts and words.
func (r *Reader) PulledIDs(user int64) Source { return r.pulled(user, true) }

func (r *Reader) pulled(user int64, ids bool) Source {
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		found, err := r.db.QueryContext(ctx, near(r.ends.heads, in), user, in.After, in.Upper(), in.Limit)
		if err != nil {
			return Batch{}, fmt.Errorf("read newest posts of followees: %w", err)
		}
		defer found.Close()
		var authors ranges
		reach, last := 0, int64(0)
		for found.Next() {
			var author, head int64
			var followsBack bool
			if err := found.Scan(&author, &head, &followsBack); err != nil {
				return Batch{}, fmt.Errorf("read newest posts of followees: %w", err)
			}
			if in.After < head && head < in.Upper() { // otherwise the range has none
				reach, last = reach+1, head
				authors.add(author, visibleTo(Home, viewer, Relation{Following: true, FollowedBy: followsBack}, author))
			}
		}
		if err := found.Err(); err != nil || reach == 0 {
			return Batch{}, rows.Wrap("read newest posts of followees", err)
		}
		full := reach == in.Limit
		if full { // the limit lies between here and the last head, hidden posts included
			if in.Ascending {
				in.Before = last + 1
			} else {
				in.After = last - 1
			}
		}
		b, err := r.nearest(ctx, viewer, authors, in, ids)
		if err == nil && full && !b.More {
			b.Last, b.More = last, true
		}
		return b, err
	}
}

// ranges select, of each of some authors, the posts of some visibilities. They are
// ranges of one index, a pair for each.
type ranges struct {
	authors      []int64
	visibilities []string
}

func (r *ranges) add(author int64, visibilities []schema.Visibility) {
	for _, v := range visibilities {
		r.authors, r.visibilities = append(r.authors, author), append(r.visibilities, string(v))
	}
}

// args are the ranges as parameters: two arrays, or pairs for SQLite.
func (r *ranges) args(of string) []any {
	if of == dialect.Postgres {
		return []any{r.authors, r.visibilities}
	}
	pairs := make([][2]any, len(r.authors))
	for i, author := range r.authors {
		pairs[i] = [2]any{author, r.visibilities[i]}
	}
	list, _ := json.Marshal(pairs) // numbers and strings always marshal
	return []any{string(list)}
}

// nearest reads the posts of the ranges of authors at the near end of a range, or what an
// inbox asks of them.
func (r *Reader) nearest(ctx context.Context, viewer int64, of ranges, in timeline.Range, ids bool) (b Batch, err error) {
	if len(of.authors) == 0 {
		return Batch{}, nil
	}
	args := append([]any{viewer, in.After, in.Upper(), in.Limit}, of.args(r.dialect)...)
	switch {
	case ids:
		b.posts, err = r.readWordless(ctx, near(r.ends.wordless, in), args...)
	case viewer == 0:
		b.posts, err = r.read(ctx, in.Limit, 0, near(r.ends.anonymous, in), args...)
	default:
		b.posts, err = r.read(ctx, in.Limit, Likes, near(r.ends.posts, in), args...)
	}
	if err != nil || len(b.posts) == 0 {
		return Batch{}, err
	}
	b.Last, b.More = b.posts[len(b.posts)-1].ID, len(b.posts) == in.Limit
	return b, nil
}

// readWordless reads what an inbox asks of posts. Whoever shows one of them gets an error.
func (r *Reader) readWordless(ctx context.Context, query string, args ...any) (list []*ent.Post, err error) {
	found, err := r.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var p ent.Post
		var visibility string
		if err := found.Scan(&p.ID, &p.AuthorID, &visibility, &p.ForViewer); err != nil {
			return nil, fmt.Errorf("read posts: %w", err)
		}
		p.Visibility = schema.Visibility(visibility)
		list = append(list, &p)
	}
	return list, rows.Wrap("read posts", found.Err())
}
