package visibility

import (
	"context"
	"fmt"
	"slices"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/ent/mutedconversation"
	"tideline/ent/post"
	"tideline/ent/posttag"
	"tideline/ent/predicate"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
	"tideline/timeline"
)

// By returns the source of one author's posts. It skips all posts that the viewer may not see on
// the surface.
//
// Cost: the relation of the two users, and for each visibility that the viewer may see, an index
// range of at most limit posts.
func (r *Reader) By(on Surface, author int64) Source {
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		relations, err := r.Relations(ctx, viewer, []int64{author})
		if err != nil {
			return Batch{}, err
		}
		var near ranges
		near.add(author, visibleTo(on, viewer, relations[author], author))
		return r.nearest(ctx, viewer, near, in, false)
	}
}

// MostLooked is how many posts a page looks at in a list that may be full of posts that the viewer
// may not see. A page with a larger limit looks at as many posts as its limit.
const MostLooked = 500

// lookedAgain is the smallest batch after the first one. A page of one post that began with a batch
// of two and doubled it took 18 queries to look at MostLooked posts.
const lookedAgain = MostLooked / 4

// Bounded returns a source that ends after so many posts, or after as many as its first range if that is
// longer. stopped is then an id behind which the list goes on, and otherwise 0. A client can read it, so it
// is not the id of a post, if there is a gap between two.
//
// Cost: as the source.
func Bounded(most int, from Source) (bounded Source, stopped *int64) {
	return endsAfter(most, 0, func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error) {
		b, err := from(ctx, viewer, in)
		if final && b.More {
			ids := append([]int64{nearEnd(in)}, rows.PostIDs(b.posts)...)
			if b.Last != ids[len(ids)-1] {
				ids = append(ids, b.Last)
			}
			ids, b.Last = rows.Cut(ids)
			b.posts = b.posts[:min(len(ids)-1, len(b.posts))]
		}
		return b, err
	})
}

// nearEnd returns the bound from which the range is read.
func nearEnd(in timeline.Range) int64 {
	if in.Ascending {
		return in.After
	}
	return in.Upper()
}

// bounded is endsAfter MostLooked rows.
func bounded(from func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error)) (bounded Source, stopped *int64) {
	return endsAfter(MostLooked, lookedAgain, from)
}

// endsAfter returns a source that ends after so many rows. If it ends there, stopped is the Last
// of its last batch; otherwise stopped is 0. again is the smallest batch after the first one. from gets
// final set for the last batch.
func endsAfter(most, again int, from func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error)) (bounded Source, stopped *int64) {
	left := -1 // nothing has been read yet
	stopped = new(int64)
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		if left < 0 {
			left = max(most, in.Limit)
		} else if in.Limit = max(in.Limit, again); left < 2*in.Limit {
			in.Limit = left // make the last batch large, so that Cut finds a gap in it
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

// LikedBy returns the source of the posts that the user likes, in the order of the likes. Its
// ranges are ranges of like ids, and likes maps each post that it found to its like. Many of the
// posts may have become invisible, so the source ends after the first MostLooked likes. stopped is
// then the id of the last of these likes, and otherwise 0.
//
// Cost: two queries, one by index range and one by primary key.
func (r *Reader) LikedBy(user int64) (from Source, likes map[int64]int64, stopped *int64) {
	return r.marked(func(ctx context.Context, in timeline.Range) (list []mark, err error) {
		err = r.db.Like.Query().Where(like.UserID(user), like.IDGT(in.After), like.IDLT(in.Upper())).
			Order(inOrder(in)).Limit(in.Limit).Select(like.FieldID, like.FieldPostID).Scan(ctx, &list)
		return list, errs.Wrap(err, "read likes")
	})
}

// MutedBy returns the source of the first posts of the conversations that the user mutes, in the
// order in which they were muted. Otherwise it is like LikedBy.
//
// Cost: two queries, one for all conversations that the user mutes and one by primary key.
func (r *Reader) MutedBy(user int64) (from Source, muted map[int64]int64, stopped *int64) {
	all, muted, stopped := r.marked(func(ctx context.Context, in timeline.Range) (list []mark, err error) {
		err = r.db.MutedConversation.Query().
			Where(mutedconversation.UserID(user), mutedconversation.IDGT(in.After), mutedconversation.IDLT(in.Upper())).
			Order(inOrder(in)).Limit(in.Limit).Select(mutedconversation.FieldID, mutedconversation.FieldRootID).Scan(ctx, &list)
		return list, errs.Wrap(err, "read muted conversations")
	})
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		b, err := all(ctx, viewer, in)
		// A post that was muted unseen may be a reply. Its row mutes nothing.
		b.posts = slices.DeleteFunc(b.posts, func(p *ent.Post) bool { return p.RootID != 0 || p.RepostOf != 0 })
		return b, err
	}, muted, stopped
}

// mark is a row with which a user marked a post.
type mark struct {
	ID   int64
	Post int64 `sql:"post_id"`
	Root int64 `sql:"root_id"`
}

// inOrder orders rows by their ids, in the direction of the range.
func inOrder(in timeline.Range) func(*sql.Selector) {
	if in.Ascending {
		return ent.Asc(like.FieldID)
	}
	return ent.Desc(like.FieldID)
}

// marked returns the source of the posts that list finds by their rows, as LikedBy describes it.
func (r *Reader) marked(list func(ctx context.Context, in timeline.Range) ([]mark, error)) (from Source, rows map[int64]int64, stopped *int64) {
	rows = map[int64]int64{}
	from, stopped = bounded(func(ctx context.Context, viewer int64, in timeline.Range, _ bool) (Batch, error) {
		marks, err := list(ctx, in)
		if err != nil || len(marks) == 0 {
			return Batch{}, err
		}
		ids := make([]int64, len(marks))
		for i, m := range marks {
			ids[i] = m.Post + m.Root // one of them is 0
			rows[ids[i]] = m.ID
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.Last, b.More = marks[len(marks)-1].ID, len(marks) == in.Limit
		return b, err
	})
	return from, rows, stopped
}

// Tagged returns the source of the posts with the tag, in the form in which package tag compares
// it. A tag may be full of posts that the viewer may not see, so the source ends after the first
// MostLooked posts. stopped is then an id behind which the list goes on, and otherwise 0. A client
// can read it in a cursor, so it is not the id of a post: it lies between the last post that the
// source looked at and the next one.
//
// Cost: two queries, one by index range and one by primary key.
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
			return Batch{}, errs.Wrap(err, "read tags")
		}
		more, last := len(ids) == in.Limit, ids[len(ids)-1]
		if final && more {
			ids, last = rows.Cut(ids)
		}
		b, _, err := r.ByIDs(ctx, viewer, ids, Likes)
		b.Last, b.More = last, more
		return b, err
	})
}

// Listed returns the source of the posts with the ids, which must be in descending order.
//
// Cost: as Posts.
func (r *Reader) Listed(ids []int64) Source {
	return func(ctx context.Context, viewer int64, in timeline.Range) (Batch, error) {
		near := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return id <= in.After || id >= in.Upper() })
		if in.Ascending {
			slices.Reverse(near)
		}
		if len(near) == 0 {
			return Batch{}, nil
		}
		b, _, err := r.ByIDs(ctx, viewer, near[:min(len(near), in.Limit)], Likes)
		b.More = len(near) > in.Limit
		return b, err
	}
}

// Link is a column of posts that names another post.
type Link string

// The links.
const (
	Parent   Link = post.FieldParentID // of replies: the post replied to
	Root     Link = post.FieldRootID   // of replies: the first post of the conversation
	Original Link = post.FieldRepostOf // of reposts
	Quoted   Link = post.FieldQuoteOf  // of posts that quote
)

// Linked returns the source of the posts whose link names the post with the id. The viewer may not be
// allowed to see many of them, so the source ends as that of Tagged does.
//
// Cost: two queries, one by index range and one by primary key.
func (r *Reader) Linked(by Link, id int64) (from Source, stopped *int64) {
	also := ""
	switch by {
	case Root: // reposts of replies have the root, too
		also = " AND parent_id IS NOT NULL"
	case Quoted:
		also = " AND NOT quote_withdrawn"
	}
	return bounded(func(ctx context.Context, viewer int64, in timeline.Range, final bool) (Batch, error) {
		order := "DESC"
		if in.Ascending {
			order = "ASC"
		}
		list, err := rows.IDs(ctx, r.db, fmt.Sprintf("SELECT id FROM posts WHERE %s = $1%s AND id > $2 AND id < $3 ORDER BY id %s LIMIT $4", by, also, order),
			id, in.After, in.Upper(), in.Limit)
		if err != nil || len(list) == 0 {
			return Batch{}, errs.Wrap(err, "read replies, reposts or quotes")
		}
		more, last := len(list) == in.Limit, list[len(list)-1]
		if final && more {
			list, last = rows.Cut(list)
		}
		b, _, err := r.ByIDs(ctx, viewer, list, Likes)
		b.Last, b.More = last, more
		return b, err
	})
}

// AncestorIDs returns the ids of the post's ancestors, at most most: the parent, its parent and so on.
//
// Cost: one query with a look-up an ancestor.
func (r *Reader) AncestorIDs(ctx context.Context, parent int64, most int) ([]int64, error) {
	list, err := rows.IDs(ctx, r.db, "WITH RECURSIVE up (id, parent_id, n) AS (SELECT id, parent_id, 1 FROM posts WHERE id = $1"+
		" UNION ALL SELECT p.id, p.parent_id, up.n + 1 FROM up JOIN posts p ON p.id = up.parent_id WHERE up.n < $2) SELECT id FROM up ORDER BY n", parent, most)
	return list, errs.Wrap(err, "read ancestors")
}
