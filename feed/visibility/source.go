package visibility

import (
	"context"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/ent/posttag"
	"tideline/ent/predicate"
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
		return r.nearest(ctx, viewer, near, in, false)
	}
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
// after the first 2,000 posts. Then stopped is an id behind which the list goes on, and
// otherwise 0. A client can read it in a cursor, so it is no post's id: it lies between the
// last post that the source looked at and the next one.
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
		more := len(ids) == limit
		if left -= len(ids); left == 0 && more {
			more = false
			ids, *stopped = cut(ids)
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.More = more
		return b, err
	}, stopped
}

// cut returns the ids, which are ordered, up to their last gap, and an id in the middle of
// that gap. The ids behind the gap are for the next page. Ids without any gap, of which a
// thousand are not made in a row, stay as they are.
func cut(ids []int64) (near []int64, between int64) {
	for n := len(ids) - 1; n > 0; n-- {
		a, b := ids[n-1], ids[n]
		if gap := max(a, b) - min(a, b); gap > 1 {
			return ids[:n], min(a, b) + gap/2
		}
	}
	return ids, ids[len(ids)-1]
}
