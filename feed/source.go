package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/predicate"
	"tideline/ent/schema"
	"tideline/timeline"
)

// span is a range of post ids, strictly between low and high (0: open), read
// from its upper end downwards or, ascending, from its lower end upwards.
type span struct {
	low, high int64
	ascending bool
}

// top is the upper bound as a number that every id is below of when it is open.
func (s span) top() int64 {
	if s.high == 0 {
		return math.MaxInt64
	}
	return s.high
}

// beyond is what is left of the span behind the id.
func (s span) beyond(id int64) span {
	if s.ascending {
		s.low = id
	} else {
		s.high = id
	}
	return s
}

// first is what to ask a feed for its n ids at the near end of the span.
func (s span) first(n int) timeline.Range {
	return timeline.Range{Before: s.high, After: s.low, Limit: n, Ascending: s.ascending}
}

// batch is what a source found at the near end of a span.
type batch struct {
	posts []*ent.Post
	last  int64 // how far the source has looked; posts may end before it
	more  bool  // there may be more behind last
}

// source reads, for the viewer, up to n posts from the near end of a span. It may
// leave out what visibleTo does not have, but decides nothing: all that it returns
// goes through fill.
type source func(ctx context.Context, viewer int64, s span, n int) (batch, error)

// fill reads from the source until n posts have passed at door d or the span
// is exhausted, so that a page is full while there is more to see.
func (f *Feed) fill(ctx context.Context, d Surface, viewer int64, n int, s span, from source) ([]*ent.Post, error) {
	kept := make([]*ent.Post, 0, n)
	// What is hidden tends to come in runs, so every further read is larger.
	for size := n; ; size = min(2*size, 1000) {
		b, err := from(ctx, viewer, s, size)
		if err != nil {
			return nil, err
		}
		visible, err := shown(d, viewer, b.posts)
		if err != nil {
			return nil, err
		}
		kept = append(kept, visible[:min(len(visible), n-len(kept))]...)
		if len(kept) == n || !b.more {
			return kept, nil
		}
		s = s.beyond(b.last)
	}
}

// inSQL is the source of the posts in the table that match.
func (f *Feed) inSQL(match predicate.Post) source {
	return func(ctx context.Context, viewer int64, s span, n int) (batch, error) {
		order := ent.Desc(post.FieldID)
		if s.ascending {
			order = ent.Asc(post.FieldID)
		}
		rows, err := f.posts(viewer).Where(match, post.IDGT(s.low), post.IDLT(s.top())).Order(order).Limit(n).All(ctx)
		if err != nil || len(rows) == 0 {
			return batch{}, wrap("read posts", err)
		}
		return batch{posts: rows, last: rows[len(rows)-1].ID, more: len(rows) == n}, nil
	}
}

// writtenBy is the source of one author's posts, past those that the viewer may
// not see, however many they are.
//
// Cost: the relation of the two, and of each visibility that it may see at most
// n posts of an index range.
func (f *Feed) writtenBy(d Surface, author int64) source {
	return func(ctx context.Context, viewer int64, s span, n int) (batch, error) {
		r, err := f.relation(ctx, viewer, author)
		if err != nil {
			return batch{}, err
		}
		var near ranges
		near.add(author, visibleTo(d, viewer, r, author))
		if len(near.authors) == 0 {
			return batch{}, nil
		}
		return f.inSQL(f.nearest(near, s, n))(ctx, viewer, s, n)
	}
}

// profile is the source of an author's posts for whoever looks at them: from the
// outbox, and once some of that turned out to be hidden, from SQL, which need not
// go through all that an outbox has of it.
func (f *Feed) profile(author int64) source {
	k := f.outbox(author)
	k.from = f.writtenBy(k.door, author)
	from := f.cached(k)
	return func(ctx context.Context, viewer int64, s span, n int) (batch, error) {
		defer func() { from = k.from }()
		return from(ctx, viewer, s, n)
	}
}

// pulled is the source of a home timeline without an inbox: fan-out on read. It
// looks up the newest post in the span of everyone whom the user follows, and
// then reads posts of those authors only who can reach the batch: the n-th newest
// head is a floor under it. A head may be hidden, what is read behind it is not.
//
// Cost: two queries. One look-up a followee by primary key, and one more in the
// index of posts for those who posted beyond the near end of the span too, which
// nobody did of a first page; then at most n posts of each visibility of n
// authors, and whether these follow the user.
func (f *Feed) pulled(user int64) source {
	// An array, not a join: its cost does not hang on what the database guesses
	// of the number of users. A correlated query costs more by a fifth.
	among := "IN (%s)"
	if f.dialect == dialect.Postgres {
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
	return func(ctx context.Context, viewer int64, s span, n int) (batch, error) {
		query := newest
		if s.ascending {
			query = oldest
		}
		rows, err := f.db.QueryContext(ctx, query, user, s.low, s.top(), n)
		if err != nil {
			return batch{}, fmt.Errorf("read newest posts of followees: %w", err)
		}
		defer rows.Close()
		var near ranges
		authors, last := 0, int64(0)
		for rows.Next() {
			var author, head int64
			r := Relation{Following: true}
			if err := rows.Scan(&author, &head, &r.FollowedBy); err != nil {
				return batch{}, fmt.Errorf("read newest posts of followees: %w", err)
			}
			if s.low < head && head < s.top() { // else there is none in the span
				near.add(author, visibleTo(HomeTimeline, viewer, r, author))
				authors, last = authors+1, head
			}
		}
		if err := rows.Err(); err != nil || authors == 0 {
			return batch{}, wrap("read newest posts of followees", err)
		}
		if authors == n { // n posts lie between here and the last head, hidden ones too
			if s.ascending {
				s.high = last + 1
			} else {
				s.low = last - 1
			}
		}
		b, err := f.inSQL(f.nearest(near, s, n))(ctx, viewer, s, n)
		if err == nil && authors == n && !b.more {
			b.last, b.more = last, true
		}
		return b, err
	}
}

// among matches rows whose column is one of the ids. These are one parameter,
// however many they are: a statement of its own for each number would be planned
// again and again, which takes longer than reading the rows.
func (f *Feed) among(column string, ids []int64) func(*sql.Selector) {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.Ident(s.C(column))
			if f.dialect == dialect.Postgres {
				b.WriteString(" = ANY(").Arg(ids).WriteString(")")
			} else {
				b.WriteString(" IN (SELECT value FROM json_each(").Arg(jsonOf(ids)).WriteString("))")
			}
		}))
	}
}

// jsonOf is ids as SQLite takes them in one parameter.
func jsonOf(ids []int64) string {
	list, _ := json.Marshal(ids) // numbers always marshal
	return string(list)
}

// ranges are what is read of some authors: of each, the posts of some visibilities.
// They are ranges of one index, a pair for each.
type ranges struct {
	authors      []int64
	visibilities []string
}

func (r *ranges) add(author int64, visibilities []schema.Visibility) {
	for _, v := range visibilities {
		r.authors, r.visibilities = append(r.authors, author), append(r.visibilities, string(v))
	}
}

// pairs is the ranges as SQLite takes them in one parameter.
func (r *ranges) pairs() string {
	pairs := make([][2]any, len(r.authors))
	for i, author := range r.authors {
		pairs[i] = [2]any{author, r.visibilities[i]}
	}
	list, _ := json.Marshal(pairs) // numbers and strings always marshal
	return string(list)
}

// nearest matches the n posts of the ranges at the near end of the span, at
// least. The database is told to take them from the end of each range; left to
// itself it goes through what everybody posted, or all that is hidden.
func (f *Feed) nearest(of ranges, s span, n int) predicate.Post {
	order := " DESC LIMIT "
	if s.ascending {
		order = " ASC LIMIT "
	}
	return func(q *sql.Selector) {
		q.Where(sql.P(func(b *sql.Builder) {
			end := func(author, visibility string) {
				b.WriteString("(SELECT p.id FROM posts p WHERE p.author_id = " + author + " AND p.visibility = " + visibility + " AND p.id > ").Arg(s.low).
					WriteString(" AND p.id < ").Arg(s.top()).WriteString(" ORDER BY p.id" + order).Arg(n).WriteString(")")
			}
			b.Ident(q.C(post.FieldID)).WriteString(" IN (SELECT h.id FROM ")
			if f.dialect == dialect.Postgres {
				b.WriteString("unnest(").Arg(of.authors).WriteString("::bigint[], ").Arg(of.visibilities).
					WriteString("::text[]) a(author, visibility) CROSS JOIN LATERAL ")
				end("a.author", "a.visibility")
				b.WriteString(" h")
			} else { // a JOIN is as good as LATERAL when the other side is IN what depends on this one
				b.WriteString("json_each(").Arg(of.pairs()).WriteString(") a CROSS JOIN posts h ON h.id IN ")
				end("a.value ->> 0", "a.value ->> 1")
			}
			b.WriteString(" ORDER BY h.id" + order).Arg(n).WriteString(")")
		}))
	}
}

// cached is the source that reads a feed in Redis, merged with those beside it,
// as far as they cover the span, and goes on in SQL, on the same ids, where
// they do not. Without the feed all comes from SQL and the feed is built behind
// the answer, not beside it, where it would take its time. When Redis fails, SQL
// answers.
func (f *Feed) cached(k cachedFeed) source {
	return func(ctx context.Context, viewer int64, s span, n int) (batch, error) {
		feeds, parts, err := f.readParts(ctx, k, s, n)
		begun := k.begun != nil
		if begun {
			defer f.buildSoon(k)
			k.begun = nil // once
		}
		if errors.Is(err, errTooManyOutboxes) {
			return k.from(ctx, viewer, s, n)
		}
		if err != nil {
			f.log.WarnContext(ctx, "feed not read; going on in SQL", "error", err)
			f.cfg.Observe(false)
			return k.from(ctx, viewer, s, n)
		}
		ready := true
		for i, p := range parts {
			if p.State != timeline.Ready {
				ready = false
				if !begun || feeds[i].key != k.key {
					defer f.buildSoon(feeds[i]) // also while it is being built: the builder may be dead
				}
			}
		}
		f.cfg.Observe(ready)
		if !ready {
			return k.from(ctx, viewer, s, n)
		}
		ids, floor := merge(parts, s, n)
		if s.ascending && s.low < floor {
			return k.from(ctx, viewer, s, n)
		}
		b := batch{more: len(ids) == n}
		if len(ids) > 0 {
			b.last = ids[len(ids)-1]
			if b.posts, err = f.hydrate(ctx, viewer, feeds, parts, ids); err != nil {
				return batch{}, err
			}
		}
		if b.more || s.ascending || s.low >= floor-1 {
			return b, nil
		}
		s.high = min(s.top(), floor)
		below, err := k.from(ctx, viewer, s, n-len(ids))
		if err != nil {
			return batch{}, err
		}
		below.posts = slices.Concat(b.posts, below.posts)
		return below, nil
	}
}

// readParts is what a feed in Redis, and those that are read with it, have of the near
// end of a span.
func (f *Feed) readParts(ctx context.Context, k cachedFeed, s span, n int) (feeds []cachedFeed, parts []timeline.Part, err error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	r := s.first(n)
	feeds = []cachedFeed{k}
	if r == k.known {
		parts = append(parts, k.part)
	}
	if k.merge != nil {
		c, err := k.merge(ctx, k.user, s, n)
		if err != nil {
			return nil, nil, err
		}
		if c.skipInbox {
			feeds, parts = nil, nil
		} else if len(parts) > 0 && parts[0].State != timeline.Ready {
			return feeds, parts, nil
		}
		feeds, r.After = append(feeds, c.feeds...), c.low
	}
	more, err := f.tl.Pages(ctx, keysOf(feeds[len(parts):]), r)
	parts = append(parts, more...)
	if r.After > s.low {
		// Fewer than n may lie above, as newest posts have been deleted. What is
		// below, these feeds alone do not have.
		for i := range parts {
			parts[i].Floor = max(parts[i].Floor, r.After+1)
		}
	}
	return feeds, parts, err
}

func keysOf(feeds []cachedFeed) []timeline.Key {
	keys := make([]timeline.Key, len(feeds))
	for i, k := range feeds {
		keys[i] = k.key
	}
	return keys
}

// merge is the first n ids of what several feeds hold of a span, each id once,
// and the highest of the feeds' floors: from there on upwards the union is
// complete. Ids below it are left out.
func merge(parts []timeline.Part, s span, n int) (ids []int64, floor int64) {
	for _, p := range parts {
		ids = append(ids, p.IDs...)
		floor = max(floor, p.Floor)
	}
	if len(parts) > 1 {
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if !s.ascending {
			slices.Reverse(ids)
		}
	}
	// A feed that has more ids than n ends with one that is not among the first
	// n of the union, so nothing is missing before that.
	ids = slices.DeleteFunc(ids[:min(len(ids), n)], func(id int64) bool { return id < floor })
	return ids, floor
}

// hydrate reads the posts of ids that parts of feeds hold, in their order. Those
// that no longer exist never come back: they are taken out of the feeds that hold
// them, a round trip each.
func (f *Feed) hydrate(ctx context.Context, viewer int64, feeds []cachedFeed, parts []timeline.Part, ids []int64) ([]*ent.Post, error) {
	rows, err := f.posts(viewer).Where(f.among(post.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	ordered := inOrder(ids, rows, func(p *ent.Post) int64 { return p.ID })
	if len(rows) == len(ids) {
		return ordered, nil
	}
	posts := make([]*ent.Post, 0, len(rows))
	var gone []int64
	for i, p := range ordered {
		if p == nil {
			gone = append(gone, ids[i])
		} else {
			posts = append(posts, p)
		}
	}
	for i, k := range feeds {
		held := slices.DeleteFunc(slices.Clone(gone), func(id int64) bool { return !slices.Contains(parts[i].IDs, id) })
		if len(held) == 0 {
			continue
		}
		if err := f.tl.Remove(ctx, k.key, held...); err != nil {
			f.log.DebugContext(ctx, "deleted posts not taken out of a feed", "error", err)
		}
	}
	return posts, nil
}

// wrap adds what was done to an error, and leaves nil alone.
func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
