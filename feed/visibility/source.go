package visibility

import (
	"context"
	"encoding/json"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/posttag"
	"tideline/ent/predicate"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

// By is the source of one author's posts. It skips all posts that the viewer may
// not see on the surface.
//
// Cost: the relation of the two, and of each visibility that it may see at most
// as many posts of an index range as the limit says.
func (r *Reader) By(on Surface, author int64) Source {
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		to, err := r.relation(ctx, viewer, author)
		if err != nil {
			return Batch{}, err
		}
		var near ranges
		near.add(author, visibleTo(on, viewer, to, author))
		return r.nearest(ctx, viewer, near, in)
	}
}

// Followee is an author whom a viewer follows.
type Followee struct {
	ID          int64
	FollowsBack bool // the author follows the viewer
}

// ByFollowees reads the posts of the followees, or of the viewer, in the range. It
// leaves out most of the posts that are hidden from the viewer's home timeline.
//
// Cost: one query, of at most as many posts of each visibility of each followee as
// the limit says.
func (r *Reader) ByFollowees(ctx context.Context, viewer int64, followees []Followee, in timeline.Range) (Batch, error) {
	var near ranges
	for _, f := range followees {
		near.add(f.ID, visibleTo(Home, viewer, Relation{Following: true, FollowedBy: f.FollowsBack}, f.ID))
	}
	return r.nearest(ctx, viewer, near, in)
}

// nearest reads the posts of the ranges of authors at the near end of a range.
func (r *Reader) nearest(ctx context.Context, viewer int64, of ranges, in timeline.Range) (Batch, error) {
	if len(of.authors) == 0 {
		return Batch{}, nil
	}
	return r.matching(r.nearEnds(of, in))(ctx, viewer, in)
}

// LikedBy is the source of the posts that the user likes, ordered by like. Its ranges are of
// the ids of likes, and likes has the one of each post that it found.
//
// Cost: two queries, an index range and by primary key.
func (r *Reader) LikedBy(user int64) (from Source, likes map[int64]int64) {
	likes = map[int64]int64{}
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		order := ent.Desc(like.FieldID)
		if in.Ascending {
			order = ent.Asc(like.FieldID)
		}
		list, err := r.db.Like.Query().Where(like.UserID(user), like.IDGT(in.After), like.IDLT(in.Upper())).Order(order).Limit(in.Limit).All(ctx)
		if err != nil || len(list) == 0 {
			return Batch{}, rows.Wrap("read likes", err)
		}
		ids := make([]int64, len(list))
		for i, l := range list {
			ids[i], likes[l.PostID] = l.PostID, l.ID
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.Last, b.More = list[len(list)-1].ID, len(list) == in.Limit
		return b, err
	}, likes
}

// mostTagged is how many posts of a tag one page looks at.
const mostTagged = 2000

// Tagged is the source of the posts that have the tag, in the form in which package tag
// compares it. A tag may be full of posts that the viewer may not see, so the source ends
// after the first 2,000 posts: stopped then has the last of them, and otherwise 0.
//
// Cost: two queries, an index range and by primary key.
func (r *Reader) Tagged(tag string) (from Source, stopped *int64) {
	left, stopped := mostTagged, new(int64)
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		order, limit := ent.Desc(posttag.FieldPostID), min(in.Limit, left)
		if in.Ascending {
			order = ent.Asc(posttag.FieldPostID)
		}
		var ids []int64
		err := r.db.PostTag.Query().Where(posttag.Tag(tag), predicate.PostTag(sql.FieldGT(posttag.FieldPostID, in.After)), predicate.PostTag(sql.FieldLT(posttag.FieldPostID, in.Upper()))).
			Order(order).Limit(limit).Select(posttag.FieldPostID).Scan(ctx, &ids)
		if err != nil || len(ids) == 0 {
			return Batch{}, rows.Wrap("read tags", err)
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.More = len(ids) == limit
		if left -= len(ids); left == 0 && b.More {
			b.More, *stopped = false, b.Last
		}
		return b, err
	}, stopped
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

// pairs encodes the ranges as one parameter for SQLite.
func (r *ranges) pairs() string {
	pairs := make([][2]any, len(r.authors))
	for i, author := range r.authors {
		pairs[i] = [2]any{author, r.visibilities[i]}
	}
	list, _ := json.Marshal(pairs) // numbers and strings always marshal
	return string(list)
}

// nearEnds matches the posts of the ranges at the near end of a range, at least as
// many as its limit. It has the database take them from the end of each range.
// Otherwise the database goes through the posts of all authors, or through all
// hidden posts.
func (r *Reader) nearEnds(of ranges, in timeline.Range) predicate.Post {
	order := " DESC LIMIT "
	if in.Ascending {
		order = " ASC LIMIT "
	}
	return func(q *sql.Selector) {
		q.Where(sql.P(func(b *sql.Builder) {
			end := func(author, visibility string) {
				b.WriteString("(SELECT p.id FROM posts p WHERE p.author_id = " + author + " AND p.visibility = " + visibility + " AND p.id > ").Arg(in.After).
					WriteString(" AND p.id < ").Arg(in.Upper()).WriteString(" ORDER BY p.id" + order).Arg(in.Limit).WriteString(")")
			}
			b.Ident(q.C(post.FieldID)).WriteString(" IN (SELECT h.id FROM ")
			if r.dialect == dialect.Postgres {
				b.WriteString("unnest(").Arg(of.authors).WriteString("::bigint[], ").Arg(of.visibilities).
					WriteString("::text[]) a(author, visibility) CROSS JOIN LATERAL ")
				end("a.author", "a.visibility")
				b.WriteString(" h")
			} else { // a JOIN is as good as LATERAL when the other side is IN what depends on this one
				b.WriteString("json_each(").Arg(of.pairs()).WriteString(") a CROSS JOIN posts h ON h.id IN ")
				end("a.value ->> 0", "a.value ->> 1")
			}
			b.WriteString(" ORDER BY h.id" + order).Arg(in.Limit).WriteString(")")
		}))
	}
}
