package visibility

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// Changed is a change of a post of a conversation: the post is new, or its content or visibility
// changed, or it is gone. It has what decides who might have been shown the post before, because the
// row may be gone.
type Changed struct {
	Post, Author int64
	// Root is the first post of the conversation. It may be the post itself.
	Root int64
	// ParentAuthor is the author of the post that a reply replies to; 0 for the root.
	ParentAuthor int64
	// From is the visibility before the change. It is empty if nobody could see the post.
	From schema.Visibility
}

// String returns the change as text, without the root.
func (c Changed) String() string {
	return fmt.Sprintf("%d %d %d %s", c.Post, c.Author, c.ParentAuthor, c.From)
}

// ParseChanged parses the result of String.
func ParseChanged(root int64, text string) (Changed, error) {
	c := Changed{Root: root}
	if _, err := fmt.Sscanf(text, "%d %d %d", &c.Post, &c.Author, &c.ParentAuthor); err != nil {
		return Changed{}, fmt.Errorf("read a change of a conversation: %w", err)
	}
	c.From = schema.Visibility(text[strings.LastIndexByte(text, ' ')+1:])
	return c, nil
}

// Widened reports whether the change may show the post, as it is now, to somebody who could not see it
// before.
func (c Changed) Widened(p *ent.Post) bool { return c.From != p.Visibility }

// before returns the post as it was before the change, with the fields that decide who may see it.
func (c Changed) before() *ent.Post {
	p := &ent.Post{ID: c.Post, AuthorID: c.Author, Visibility: c.From}
	if c.Post != c.Root {
		p.RootID, p.ParentID, p.ParentAuthorID = c.Root, c.Post, c.ParentAuthor
	}
	return p
}

// ChangeVerdict holds the post of a change, and which of some users may be shown it by its id.
type ChangeVerdict struct {
	Verdict
	saw map[int64]bool
}

// Saw reports whether the user, who must be among the users that were passed to JudgeChange, might
// have been shown the post before the change, with the present relations. It ignores whether the
// author is hidden now.
func (v *ChangeVerdict) Saw(user int64) bool { return v.saw[user] }

// JudgeChange reads the post of a change with all its fields except Likes, and decides which of the
// users may be shown it by its id, and which of them might have been shown it before. A user who never
// might must not be told of the change.
//
// Cost: one query by primary key, and one per 20,000 users with at most ten look-ups a user.
func (r *Reader) JudgeChange(ctx context.Context, c Changed, users []int64) (ChangeVerdict, error) {
	v := ChangeVerdict{Verdict{Version: r.Version(), sees: map[int64]bool{}}, map[int64]bool{}}
	list, err := r.byKey(ctx, 0, []int64{c.Post}, All&^Likes)
	if err != nil {
		return v, err
	}
	if len(list) > 0 {
		v.Post = list[0]
		c.Author = v.Post.AuthorID // a change of the root names only the post
	}
	for chunk := range slices.Chunk(users, 20_000) {
		if err := r.changeFor(ctx, c, &v, chunk); err != nil {
			return v, err
		}
	}
	return v, nil
}

// changeFor adds to the verdict what holds for the users.
func (r *Reader) changeFor(ctx context.Context, c Changed, v *ChangeVerdict, users []int64) error {
	before := c.before()
	// The row of the post may be gone. This one has all that the flags depend on.
	const row = "(SELECT CAST($1 AS bigint) AS author_id, NULLIF(CAST($2 AS bigint), 0) AS root_id, NULLIF(CAST($3 AS bigint), 0) AS parent_id," +
		" NULLIF(CAST($4 AS bigint), 0) AS parent_author_id, CAST(NULL AS bigint) AS repost_of) p"
	found, err := r.db.QueryContext(ctx, "SELECT u.value, "+flagsForChange("u.value", "p")+" FROM "+row+" CROSS JOIN "+rows.Each(r.dialect, "$5"),
		before.AuthorID, before.RootID, before.ParentID, before.ParentAuthorID, rows.List(r.dialect, users))
	if err != nil {
		return fmt.Errorf("read relations: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var user int64
		var to Relation
		if err := found.Scan(&user, &to); err != nil {
			return fmt.Errorf("read relations: %w", err)
		}
		v.sees[user] = v.Post != nil && mayShow(Direct, user, to, v.Post)
		v.saw[user] = c.From != "" && mayShow(Direct, user, to&^Hidden, before)
	}
	return errs.Wrap(found.Err(), "read relations")
}

// enough is how many posts of a user TakesPart looks at.
const enough = 1000

// TakesPart reports whether the user wrote a post of a conversation. It returns true without looking
// further if the user wrote very many posts since the conversation began.
//
// Cost: an index range of at most enough posts of the user.
func (r Unchecked) TakesPart(ctx context.Context, root, user int64) (bool, error) {
	found, err := r.db.QueryContext(ctx, "SELECT count(*), count(CASE WHEN q.id = $1 OR q.root_id = $1 THEN 1 END) FROM"+
		" (SELECT p.id, p.root_id FROM posts p WHERE p.author_id = $2 AND p.id >= $1 ORDER BY p.id LIMIT $3) q", root, user, enough)
	if err != nil {
		return false, fmt.Errorf("look for posts of a conversation: %w", err)
	}
	defer found.Close()
	var all, there int
	for found.Next() {
		if err := found.Scan(&all, &there); err != nil {
			return false, fmt.Errorf("look for posts of a conversation: %w", err)
		}
	}
	return there > 0 || all == enough, errs.Wrap(found.Err(), "look for posts of a conversation")
}

// OfConversations returns the author's next posts that are the root of a conversation or a reply, after
// the one with the id after, oldest first: with their author, root, the author of the parent, and
// visibility. last is the id up to which it has looked, or 0 if there are no more posts.
//
// Cost: an index range of limit posts.
func (r Unchecked) OfConversations(ctx context.Context, author, after int64, limit int) (posts []*ent.Post, last int64, err error) {
	found, err := r.db.QueryContext(ctx, "SELECT p.id, p.author_id, coalesce(p.root_id, 0), coalesce(p.parent_author_id, 0), p.visibility, coalesce(p.repost_of, 0)"+
		" FROM posts p WHERE p.author_id = $1 AND p.id > $2 ORDER BY p.id LIMIT $3", author, after, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("read posts of an author: %w", err)
	}
	defer found.Close()
	n := 0
	for ; found.Next(); n++ {
		p := new(ent.Post)
		if err := found.Scan(&p.ID, &p.AuthorID, &p.RootID, &p.ParentAuthorID, &p.Visibility, &p.RepostOf); err != nil {
			return nil, 0, fmt.Errorf("read posts of an author: %w", err)
		}
		if last = p.ID; p.RepostOf == 0 {
			posts = append(posts, p)
		}
	}
	if n < limit {
		last = 0
	}
	return posts, last, errs.Wrap(found.Err(), "read posts of an author")
}
