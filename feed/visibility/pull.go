package visibility

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
	"tideline/timeline"
)

// SQL serves home timelines whenever Redis does not have them: for a user who has just come for the
// first time, or for everybody at once. So these statements are built once for each Reader.

// SourcesOf returns the query of the authors whose posts a home timeline shows: the user, and all
// followees except muted ones. Its only argument is the user.
func SourcesOf() string {
	query := "SELECT followee_id AS id FROM follows WHERE follower_id = $1"
	for _, e := range ofFollower() {
		if e.hides&Home != 0 {
			query += fmt.Sprintf(" AND followee_id NOT IN (SELECT %s FROM %s WHERE %s = $1)", e.other, e.table, e.viewer)
		}
	}
	return query + " UNION ALL SELECT id FROM users WHERE id = $1"
}

// ends holds the statements that read ranges from their near ends. The first of each pair reads the
// newest posts first, the second the oldest posts first.
type ends struct {
	heads     [2]string // authors; see headsOf
	posts     [2]string // posts, for a viewer
	anonymous [2]string
	wordless  [2]string // only the columns that an inbox needs
}

func endsOf(of string) (e ends) {
	likes := selecting(of, flagsFor("$1", "p", true), wordsOf("$1"), Likes)
	anonymous := selecting(of, "$1 * 0 + "+authorHidden("p"), "''", 0)
	for i, order := range []string{"DESC", "ASC"} {
		near := nearEnds(of, order)
		ids := fmt.Sprintf("IN (SELECT h.id %s) ORDER BY p.id %s LIMIT $4", near, order)
		e.posts[i], e.anonymous[i] = likes+ids, anonymous+ids
		e.wordless[i] = fmt.Sprintf("SELECT p.id, p.author_id, p.visibility, %d + %s FROM (SELECT h.id, h.author_id, h.visibility %s) p ORDER BY p.id %s",
			wordless, relationTo("$1", "p"), near, order)
	}
	e.heads[0] = headsOf(of, "< $3 THEN u.last_post_id", "max", "0", "DESC")
	e.heads[1] = headsOf(of, "<= $2 THEN $3", "min", "$3", "ASC")
	return e
}

// near selects the statement for the direction of a range.
func near(statements [2]string, in timeline.Range) string {
	if in.Ascending {
		return statements[1]
	}
	return statements[0]
}

// headsOf returns the query of the authors whose posts are nearest to the near end of a range; see
// Pulled. Its parameters are the user, the ends of the range, and the limit.
//
// The authors are an array, not a join: its cost does not depend on the database's estimate of the
// number of users. A correlated query costs a fifth more.
func headsOf(of, known, nearest, none, order string) string {
	among := "IN (" + SourcesOf() + ")"
	if of == dialect.Postgres {
		among = "= ANY (ARRAY(" + SourcesOf() + "))"
	}
	some := slices.DeleteFunc(ofFollower(), func(e edge) bool { return e.hides&Home != 0 }) // SourcesOf obeys these
	return fmt.Sprintf(`
SELECT h.id, h.head, %[6]s FROM (
  SELECT u.id, CASE WHEN u.last_post_id %[1]s
      ELSE coalesce((SELECT %[2]s(p.id) FROM posts p WHERE p.author_id = u.id AND p.id > $2 AND p.id < $3), %[3]s) END AS head
  FROM users u WHERE u.id %[5]s ORDER BY head %[4]s LIMIT $4
) h ORDER BY h.head %[4]s`, known, nearest, none, order, among, lookUps(some, "$1", "h.id", func(edge) string { return "" }))
}

// nearEnds returns a FROM clause that selects, as h, up to limit posts from the near end of each of
// several ranges, and of these the nearest ones up to the limit. Without it the database reads the
// posts of all authors, or all hidden posts. Its parameters are the ends of a range ($2, $3), the
// limit ($4), and the ranges as ranges.args returns them.
func nearEnds(of, order string) string {
	end := func(columns, author, visibility string) string {
		return fmt.Sprintf("(SELECT %s FROM posts e WHERE e.author_id = %s AND e.visibility = %s AND e.id > $2 AND e.id < $3 ORDER BY e.id %s LIMIT $4)",
			columns, author, visibility, order)
	}
	from := "unnest(" + rows.Array("$5", "bigint") + ", " + rows.Array("$6", "text") + ") a(author, visibility) CROSS JOIN LATERAL " +
		end("e.id, e.author_id, e.visibility", "a.author", "a.visibility") + " h"
	if of != dialect.Postgres { // without LATERAL: a JOIN can look up IN a subquery that depends on its other side
		from = "json_each($5) a CROSS JOIN posts h ON h.id IN " + end("e.id", "a.value ->> 0", "a.value ->> 1")
	}
	return "FROM " + from + " ORDER BY h.id " + order + " LIMIT $4"
}

// Pulled returns the source of a user's home timeline without an inbox: fan-out on read. It looks
// up every followee's head, the followee's post nearest to the near end of the range. Then it reads
// posts only of the authors who can contribute to the batch: it takes as many heads as the limit,
// and the batch does not reach beyond the last of them. A head may be hidden while the posts behind
// it are not. The source leaves out most posts that are hidden from the viewer's home timeline.
//
// Cost: two queries. The first makes one look-up a followee by primary key, and one more in the
// index of posts for each followee who also posted beyond the near end of the range, which on a
// first page nobody did. The second reads at most limit posts of each visibility, of at most limit
// authors. One look-up for each of these authors finds out whether the author follows the user.
func (r *Reader) Pulled(user int64) Source { return r.pulled(user, false) }

// PulledIDs is like Pulled, but for the surface Inbox only: its posts have only ids, authors and
// visibilities.
//
// Cost: as Pulled, but index entries instead of posts, and no likes, texts and words.
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
			var to Relation
			if err := found.Scan(&author, &head, &to); err != nil {
				return Batch{}, fmt.Errorf("read newest posts of followees: %w", err)
			}
			if in.After < head && head < in.Upper() { // otherwise the range has no post of the author
				reach, last = reach+1, head
				authors.add(author, visibleTo(Home, viewer, Following|to, author))
			}
		}
		if err := found.Err(); err != nil || reach == 0 {
			return Batch{}, errs.Wrap(err, "read newest posts of followees")
		}
		full := reach == in.Limit
		if full { // the batch, hidden posts included, does not reach beyond the last head
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

// ranges selects posts by pairs of an author and a visibility. Each pair is a range of one index.
type ranges struct {
	authors      []int64
	visibilities []string
}

func (r *ranges) add(author int64, visibilities []schema.Visibility) {
	for _, v := range visibilities {
		r.authors, r.visibilities = append(r.authors, author), append(r.visibilities, string(v))
	}
}

// args returns the ranges as arguments: two arrays for PostgreSQL, a list of pairs for SQLite.
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

// nearest reads posts of the authors' ranges from the near end of in. If ids is set, it reads only
// the columns that an inbox needs.
func (r *Reader) nearest(ctx context.Context, viewer int64, of ranges, in timeline.Range, ids bool) (b Batch, err error) {
	if len(of.authors) == 0 {
		return Batch{}, nil
	}
	args := append([]any{viewer, in.After, in.Upper(), in.Limit}, of.args(r.dialect)...)
	switch {
	case ids:
		b.posts, err = r.readWordless(ctx, near(r.ends.wordless, in), args...)
	case viewer == 0:
		b.posts, err = r.read(ctx, r.db, 0, in.Limit, 0, near(r.ends.anonymous, in), args...)
	default:
		b.posts, err = r.read(ctx, r.db, viewer, in.Limit, Likes, near(r.ends.posts, in), args...)
	}
	if err != nil || len(b.posts) == 0 {
		return Batch{}, err
	}
	b.Last, b.More = b.posts[len(b.posts)-1].ID, len(b.posts) == in.Limit
	return b, nil
}

// readWordless reads only the columns that an inbox needs. To show one of these posts is an error.
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
	return list, errs.Wrap(found.Err(), "read posts")
}
