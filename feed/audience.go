package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/schema"
)

// Follower is a follower of an author, with the verdict on one post.
type Follower struct {
	ID   int64
	Sees bool // the post belongs into the follower's timeline
}

// Audience is a page of an author's followers, the newest follow first: those
// before the given position, at most limit of them, and the position that the
// next page starts before; 0 before the first and after the last page. A nil
// post, one that is gone, belongs into nobody's timeline.
//
// It costs one query: an index range of the size of the page, with one look-up
// a follower.
func (f *Feed) Audience(ctx context.Context, author int64, post *ent.Post, before int64, limit int) ([]Follower, int64, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	list, last, err := f.followers(ctx, author, post, func(s *sql.Selector) {
		s.Where(sql.LT(s.C(follow.FieldID), before)).OrderBy(sql.Desc(s.C(follow.FieldID))).Limit(limit)
	})
	if len(list) < limit {
		last = 0
	}
	return list, last, err
}

// Among is Audience of the given users: those of them who follow the author.
func (f *Feed) Among(ctx context.Context, author int64, post *ent.Post, users []int64) ([]Follower, error) {
	list, _, err := f.followers(ctx, author, post, func(s *sql.Selector) {
		s.Where(f.among(s.C(follow.FieldFollowerID), users))
	})
	return list, err
}

// among matches a column that is one of the ids, which are one parameter however
// many they are: thousands of parameters take longer to read than their rows.
func (f *Feed) among(column string, ids []int64) *sql.Predicate {
	return sql.P(func(b *sql.Builder) {
		b.WriteString(column)
		if f.dialect == dialect.Postgres {
			b.WriteString(" = ANY(").Arg(ids).WriteString(")")
			return
		}
		list, _ := json.Marshal(ids) // numbers always marshal
		b.WriteString(" IN (SELECT value FROM json_each(").Arg(string(list)).WriteString("))")
	})
}

// followers reads the author's followers that pick selects, with all that
// mayShow needs to know of them: they follow, whom they follow does not block.
func (f *Feed) followers(ctx context.Context, author int64, post *ent.Post, pick func(*sql.Selector)) (list []Follower, last int64, err error) {
	t := sql.Table(follow.Table)
	s := sql.Dialect(f.dialect).Select(t.C(follow.FieldID), t.C(follow.FieldFollowerID)).From(t)
	// Whom the author follows back is asked only where it matters.
	mutual := "1 = 0"
	if post != nil && post.Visibility == schema.Mutuals {
		mutual = "EXISTS (SELECT 1 FROM follows b WHERE b.follower_id = follows.followee_id AND b.followee_id = follows.follower_id)"
	}
	s.AppendSelectExpr(sql.Raw(mutual), sql.Raw(
		"EXISTS (SELECT 1 FROM mutes m WHERE m.muter_id = follows.follower_id AND m.muted_id = follows.followee_id)"))
	s.Where(sql.EQ(t.C(follow.FieldFolloweeID), author))
	pick(s)
	query, args := s.Query()
	rows, err := f.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("read followers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var follower int64
		r := Relation{Following: true}
		if err := rows.Scan(&last, &follower, &r.FollowedBy, &r.Muting); err != nil {
			return nil, 0, fmt.Errorf("read followers: %w", err)
		}
		list = append(list, Follower{follower, post != nil && mayShow(doorTimeline, follower, r, post)})
	}
	return list, last, wrap("read followers", rows.Err())
}
