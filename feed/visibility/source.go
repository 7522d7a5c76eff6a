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

// MostLooked is how many posts a page of a list looks at that may be full of posts that the
// viewer may not see. A page of more posts looks at as many as it has.
const MostLooked = 500

// lookedAgain is the smallest batch after the first one. A page of one post that began with a batch
// of two and doubled it took 18 queries to look at MostLooked posts.
const lookedAgain = MostLooked / 4

// bounded returns a source that ends after MostLooked rows: stopped is the Last of its last
// batch then, and 0 before. The last batch is final.
func bounded(from func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error)) (bounded Source, stopped *int64) {
	left := -1 // nothing was read yet
	stopped = new(int64)
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		if left < 0 {
			left = max(MostLooked, in.Limit)
		} else if in.Limit = max(in.Limit, lookedAgain); left < 2*in.Limit {
			in.Limit = left // the last batch is a large one, in which cut finds a gap
		}
		in.Limit = min(in.Limit, left)
		left -= in.Limit
		b, err := from(ctx, viewer, in, left == 0)
		if left == 0 && b.More {
			b.More, *stopped = false, b.Last
		}
		return b, err
	}, stopped
}

// LikedBy is the source of the posts that the user likes, ordered by like. Its ranges are of
// the ids of likes, and likes has the one of each post that it found. Many of the posts may
// have become invisible, so the source ends after the first MostLooked likes: stopped is the
// id of the last of them then, and 0 before.
//
// Cost: two queries, an index range and by primary key.
func (r *Reader) LikedBy(user int64) (from Source, likes map[int64]int64, stopped *int64) {
	likes = map[int64]int64{}
	from, stopped = bounded(func(ctx context.Context, viewer int64, in timeline.Range, _ bool) (Batch, error) {
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
	})
	return from, likes, stopped
}

// Tagged is the source of the posts that have the tag, in the form in which package tag
// compares it. A tag may be full of posts that the viewer may not see, so the source ends
// after the first MostLooked posts. Then stopped is an id behind which the list goes on, and
// otherwise 0. A client can read it in a cursor, so it is no post's id: it lies between the
// last post that the source looked at and the next one.
//
// Cost: two queries, an index range and by primary key.
func (r *Reader) Tagged(tag string) (from Source, stopped *int64) {
	return bounded(func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error) {
		order := ent.Desc(posttag.FieldPostID)
		if in.Ascending {
			order = ent.Asc(posttag.FieldPostID)
		}
		var ids []int64
		err := r.db.PostTag.Query().Where(posttag.Tag(tag), predicate.PostTag(sql.FieldGT(posttag.FieldPostID, in.After)), predicate.PostTag(sql.FieldLT(posttag.FieldPostID, in.Upper()))).
			Order(order).Limit(in.Limit).Select(posttag.FieldPostID).Scan(ctx, &ids)
		if err != nil || len(ids) == 0 {
			return Batch{}, rows.Wrap("read tags", err)
		}
		more, last := len(ids) == in.Limit, ids[len(ids)-1]
		if final && more {
			ids, last = cut(ids)
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.Last, b.More = last, more
		return b, err
	})
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
