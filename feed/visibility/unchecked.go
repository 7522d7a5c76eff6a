package visibility

import (
	"context"
	"fmt"
	"slices"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// Unchecked reads what is stored of posts, and applies no rule. It is for jobs, which show posts to
// nobody, and for facts about posts that the viewer was shown.
type Unchecked struct {
	db      *ent.Client
	dialect string
}

// Post returns the id, author and visibility of a post as they are in the table, or nil if the post
// is gone.
//
// Cost: one query by primary key.
func (r Unchecked) Post(ctx context.Context, id int64) (*ent.Post, error) {
	_, p, err := r.stored(ctx, "SELECT 0, '', 0, FALSE, id, author_id, visibility FROM posts WHERE id = $1 AND visibility <> '"+string(schema.Deleted)+"'", id)
	return p, errs.Wrap(err, "read post")
}

// WithAuthor is Post together with the author's fields that decide how posts are fanned
// out: id, fan-out mode, follower count, and whether the author is hidden. The author is nil if
// gone. The post is nil if the author is hidden, because it is in nobody's timeline.
//
// Cost: one query, two look-ups by primary key.
func (r Unchecked) WithAuthor(ctx context.Context, author, id int64) (*ent.User, *ent.Post, error) {
	u, p, err := r.stored(ctx, "SELECT u.id, u.fan_out_mode, "+rows.Followers.Of(r.dialect, "u")+", u.hidden, coalesce(p.id, 0), coalesce(p.author_id, 0), coalesce(p.visibility, '')"+
		" FROM users u LEFT JOIN posts p ON p.id = $2 AND p.visibility <> '"+string(schema.Deleted)+"' AND NOT u.hidden WHERE u.id = $1", author, id)
	return u, p, errs.Wrap(err, "read author and post")
}

// Written names a post and its author.
type Written struct{ Author, Post int64 }

// Of returns the visibility of a post from WithAuthor, or "" for nil.
func Of(post *ent.Post) schema.Visibility {
	if post == nil {
		return ""
	}
	return post.Visibility
}

// Stored is a result of WithAuthors.
type Stored struct {
	Author *ent.User
	Post   *ent.Post
}

// WithAuthors is WithAuthor for several posts, in their order.
//
// Cost: one query with two look-ups by primary key a post. On SQLite one query a post.
func (r Unchecked) WithAuthors(ctx context.Context, of []Written) ([]Stored, error) {
	list := make([]Stored, len(of))
	if len(of) == 1 || r.dialect != dialect.Postgres { // one is faster without a list
		for i, w := range of {
			var err error
			if list[i].Author, list[i].Post, err = r.WithAuthor(ctx, w.Author, w.Post); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	authors, posts := make([]int64, len(of)), make([]int64, len(of))
	for i, w := range of {
		authors[i], posts[i] = w.Author, w.Post
	}
	// The limits keep PostgreSQL from reading a whole table instead of looking rows up.
	found, err := r.db.QueryContext(ctx, "SELECT w.n, u.id, u.fan_out_mode, "+rows.Followers.Of(r.dialect, "u")+", u.hidden, coalesce(p.id, 0), coalesce(p.author_id, 0), coalesce(p.visibility, '')"+
		" FROM unnest("+rows.Array("$1", "bigint")+", "+rows.Array("$2", "bigint")+") WITH ORDINALITY w (author, post, n)"+
		" CROSS JOIN LATERAL (SELECT * FROM users WHERE id = w.author LIMIT 1) u"+
		" LEFT JOIN LATERAL (SELECT * FROM posts WHERE id = w.post AND visibility <> '"+string(schema.Deleted)+"' AND NOT u.hidden LIMIT 1) p ON true", authors, posts)
	if err != nil {
		return nil, errs.Wrap(err, "read authors and posts")
	}
	defer found.Close()
	for found.Next() {
		var n int
		var u ent.User
		var p ent.Post
		if err := found.Scan(&n, &u.ID, &u.FanOutMode, &u.FollowerCount, &u.Hidden, &p.ID, &p.AuthorID, &p.Visibility); err != nil {
			return nil, errs.Wrap(err, "read authors and posts")
		}
		list[n-1].Author = &u
		if p.ID != 0 {
			list[n-1].Post = &p
		}
	}
	return list, errs.Wrap(found.Err(), "read authors and posts")
}

func (r Unchecked) stored(ctx context.Context, query string, args ...any) (*ent.User, *ent.Post, error) {
	found, err := r.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	var u ent.User
	var p ent.Post
	for found.Next() {
		if err := found.Scan(&u.ID, &u.FanOutMode, &u.FollowerCount, &u.Hidden, &p.ID, &p.AuthorID, &p.Visibility); err != nil {
			return nil, nil, err
		}
	}
	if err := found.Err(); err != nil {
		return nil, nil, err
	}
	author, post := &u, &p
	if u.ID == 0 {
		author = nil
	}
	if p.ID == 0 {
		post = nil
	}
	return author, post, nil
}

// WrittenBy returns the ids of those posts that the author wrote.
//
// Cost: one query by primary key.
func (r Unchecked) WrittenBy(ctx context.Context, author int64, ids []int64) ([]int64, error) {
	list, err := r.db.Post.Query().Where(rows.Among(post.FieldID, ids), post.AuthorID(author)).IDs(ctx)
	return list, errs.Wrap(err, "read posts")
}

// ChangedSince returns the ids of posts by the viewer and the viewer's followees that changed after
// since, at most limit, in any order: posts that were edited, and replies and reposts whose root or
// original was shown, hidden or deleted.
//
// Cost: one query with a look-up a followee in an index of changed posts.
func (r Unchecked) ChangedSince(ctx context.Context, viewer int64, since time.Time, limit int) ([]int64, error) {
	list, err := rows.IDs(ctx, r.db, "SELECT p.id FROM posts p WHERE p.changed_at > 0 AND p.changed_at > $2 AND p.author_id IN"+
		" (SELECT f.followee_id FROM follows f WHERE f.follower_id = $1 UNION ALL SELECT $1) LIMIT $3", viewer, since.UnixMilli(), limit)
	return list, errs.Wrap(err, "find changed posts")
}

// NewestPublic returns the ids of the newest public posts, newest first, at most limit, without
// replies and reposts.
//
// Cost: one query by index range.
func (r Unchecked) NewestPublic(ctx context.Context, limit int) ([]int64, error) {
	list, err := rows.IDs(ctx, r.db, "SELECT id FROM posts WHERE "+schema.NewestPublic+" ORDER BY id DESC LIMIT $1", limit)
	return list, errs.Wrap(err, "read newest posts")
}

// PostCounts are the public numbers of a post.
type PostCounts struct{ Likes, Replies, Reposts, Quotes int }

// CountsOf returns the counts of a post that was read.
func CountsOf(p *ent.Post) PostCounts {
	return PostCounts{p.LikeCount, p.ReplyCount, p.RepostCount, p.QuoteCount}
}

// Counts returns the counts of each of the posts that exist.
//
// Cost: one query by primary key.
func (r Unchecked) Counts(ctx context.Context, ids []int64) (map[int64]PostCounts, error) {
	columns := ""
	for _, c := range rows.PostCounters {
		columns += ", " + c.Of(r.dialect, "p")
	}
	found, err := r.db.QueryContext(ctx, "SELECT p.id"+columns+" FROM posts p WHERE p.id "+rows.In(r.dialect, "$1", "bigint")+
		" AND p.visibility <> '"+string(schema.Deleted)+"'", rows.List(r.dialect, ids))
	if err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	defer found.Close()
	counts := make(map[int64]PostCounts, len(ids))
	for found.Next() {
		var id int64
		var n PostCounts
		if err := found.Scan(&id, &n.Likes, &n.Replies, &n.Reposts, &n.Quotes); err != nil {
			return nil, fmt.Errorf("read counts: %w", err)
		}
		counts[id] = n
	}
	return counts, errs.Wrap(found.Err(), "read counts")
}

// NextBase returns the id of the author's next post, after the one with the id after, that has replies,
// reposts or quotes. If the next 1,000 posts have none, it returns the id of the last of them and found is
// false; the id is 0 if the author has no further posts.
//
// Cost: one query of an index range, with up to three look-ups for each post.
func (r Unchecked) NextBase(ctx context.Context, author, after int64) (id int64, found bool, err error) {
	// With at most 1,000 posts to look up, PostgreSQL does not read all posts instead. The answer has the
	// last of them, and before it, if there is one, the post that was found, which may be the same.
	list, err := rows.IDs(ctx, r.db, "WITH next AS (SELECT id FROM posts WHERE author_id = $1 AND id > $2 ORDER BY id LIMIT 1000)"+
		" SELECT id FROM (SELECT p.id FROM next p WHERE EXISTS (SELECT 1 FROM posts d WHERE d.root_id = p.id)"+
		" OR EXISTS (SELECT 1 FROM posts d WHERE d.repost_of = p.id) OR EXISTS (SELECT 1 FROM posts d WHERE d.quote_of = p.id) ORDER BY p.id LIMIT 1) found"+
		" UNION ALL SELECT MAX(id) FROM next", author, after)
	if err != nil || len(list) == 0 {
		return 0, false, errs.Wrap(err, "find posts with replies")
	}
	return slices.Min(list), len(list) == 2, nil
}
