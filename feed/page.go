package feed

import (
	"context"
	"fmt"
	"slices"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/user"
)

// DefaultPage is the page size of every list where none is asked for;
// Config.MaxPage is the largest.
const DefaultPage = 20

// Page asks for a part of a list, as Relay's connections do: First entries
// after a cursor, or the Last ones before one. Nil fields are not given.
type Page struct {
	First, Last   *int
	After, Before *string
}

// window is a Page understood: n entries strictly between two places of a list
// that is ordered downwards, taken from its upper end or, backwards, from its
// lower end. A nil place is the end of the list.
type window struct {
	n             int
	after, before *cursor
	backwards     bool
}

// MaxPage is the most entries that a page may have.
func (f *Feed) MaxPage() int { return f.cfg.MaxPage }

// open checks the page against its list and decodes its cursors. Error: BadInput.
func (f *Feed) open(p Page, l list, owner int64) (window, error) {
	w := window{n: DefaultPage}
	size, name := p.First, "first"
	if p.Last != nil {
		if p.First != nil {
			return w, refuse(BadInput, "Ask for first or last, not both.")
		}
		size, name, w.backwards = p.Last, "last", true
	}
	if size != nil {
		if w.n = *size; w.n < 1 || w.n > f.cfg.MaxPage {
			return w, refuse(BadInput, "%s must be 1 to %d, not %d.", name, f.cfg.MaxPage, w.n)
		}
	} else if p.Before != nil && p.After == nil {
		w.backwards = true
	}
	for _, place := range []struct {
		text *string
		to   **cursor
	}{{p.After, &w.after}, {p.Before, &w.before}} {
		if place.text == nil {
			continue
		}
		c, err := decodeCursor(*place.text, l, owner)
		if err != nil {
			return w, err
		}
		*place.to = &c
	}
	return w, nil
}

// Connection is one page of a list, in the list's order.
type Connection[T any] struct {
	Edges                        []Edge[T]
	HasNextPage, HasPreviousPage bool
}

// Edge is one entry of a page.
type Edge[T any] struct {
	Cursor string
	// Score is what the list is ordered by.
	Score float64
	Node  *T
}

// Nodes are the page's entries without their cursors.
func (c *Connection[T]) Nodes() []*T {
	nodes := make([]*T, len(c.Edges))
	for i, e := range c.Edges {
		nodes[i] = e.Node
	}
	return nodes
}

// PageInfo is where the page lies in its list, as Relay's connections tell it.
type PageInfo struct {
	HasNextPage, HasPreviousPage bool
	StartCursor, EndCursor       *string // nil: the page is empty
}

// PageInfo is where the page lies in its list.
func (c *Connection[T]) PageInfo() *PageInfo {
	p := &PageInfo{HasNextPage: c.HasNextPage, HasPreviousPage: c.HasPreviousPage}
	if n := len(c.Edges); n > 0 {
		p.StartCursor, p.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	return p
}

// connect makes a page of rows that were read in the window's direction, one
// more than asked for where there are more.
func connect[T any](w window, rows []*T, edge func(*T) Edge[T]) *Connection[T] {
	more := len(rows) > w.n
	rows = rows[:min(len(rows), w.n)]
	if w.backwards {
		slices.Reverse(rows)
	}
	c := &Connection[T]{Edges: make([]Edge[T], len(rows))}
	for i, row := range rows {
		c.Edges[i] = edge(row)
	}
	if w.backwards {
		c.HasPreviousPage, c.HasNextPage = more, w.before != nil
	} else {
		c.HasNextPage, c.HasPreviousPage = more, w.after != nil
	}
	return c
}

// span is the window as a range of ids.
func (w window) span() span {
	s := span{ascending: w.backwards}
	if w.after != nil {
		s.high = w.after.id
	}
	if w.before != nil {
		s.low = w.before.id
	}
	return s
}

// UserPosts is a page of those of the author's posts that the viewer may see,
// newest first. Error: BadInput.
//
// Cost: one round trip to Redis and one query of the page's posts. Where the outbox
// does not have the page, or some of its posts are hidden, two queries more: the
// relation of the two, and the posts that it may see. How many others lie between
// makes no difference.
func (f *Feed) UserPosts(ctx context.Context, v Viewer, author int64, p Page) (*Connection[ent.Post], error) {
	w, err := f.open(p, listPosts, author)
	if err != nil {
		return nil, err
	}
	rows, err := f.fill(ctx, Direct, v.ID, w.n+1, w.span(), f.profile(author))
	if err != nil {
		return nil, err
	}
	return connect(w, rows, func(p *ent.Post) Edge[ent.Post] {
		return Edge[ent.Post]{Cursor: cursor{id: p.ID}.encode(listPosts, author), Node: p}
	}), nil
}

// Followers is a page of a user's followers, newest follow first. Error: BadInput.
//
// Cost: an index range of the page, and its users by primary key.
func (f *Feed) Followers(ctx context.Context, owner int64, p Page) (*Connection[ent.User], error) {
	return f.edgePage(ctx, listFollowers, owner, p, follow.Table, follow.FieldFolloweeID, follow.FieldFollowerID)
}

// Following is a page of those whom a user follows, newest follow first. Error: BadInput.
//
// Cost: as Followers.
func (f *Feed) Following(ctx context.Context, owner int64, p Page) (*Connection[ent.User], error) {
	return f.edgePage(ctx, listFollowing, owner, p, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID)
}

// FollowRequests is a page of those who ask to follow the viewer, newest first;
// nil for anyone but the owner. Error: BadInput.
//
// Cost: as Followers.
func (f *Feed) FollowRequests(ctx context.Context, v Viewer, owner int64, p Page) (*Connection[ent.User], error) {
	if v.ID != owner {
		return nil, nil
	}
	return f.edgePage(ctx, listRequests, owner, p,
		followrequest.Table, followrequest.FieldTargetID, followrequest.FieldRequesterID)
}

// edgePage is a page of the users at the other end of the owner's edges in a
// table: theirs where mine is the owner. It costs two queries.
func (f *Feed) edgePage(ctx context.Context, l list, owner int64, p Page, table, mine, theirs string) (*Connection[ent.User], error) {
	w, err := f.open(p, l, owner)
	if err != nil {
		return nil, err
	}
	s := w.span()
	t := sql.Dialect(f.dialect).Select().From(sql.Table(table))
	query, args := t.Select(t.C("id"), t.C(theirs)).
		Where(sql.And(sql.EQ(t.C(mine), owner), sql.GT(t.C("id"), s.low), sql.LT(t.C("id"), s.top()))).
		OrderBy(sql.Desc(t.C("id"))).Limit(w.n + 1).Query()
	rows, err := f.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	defer rows.Close()
	var ids []int64
	edges := map[int64]int64{} // by the user they lead to
	for rows.Next() {
		var edge, user int64
		if err := rows.Scan(&edge, &user); err != nil {
			return nil, fmt.Errorf("read edges: %w", err)
		}
		ids, edges[user] = append(ids, user), edge
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	users, err := f.Users(ctx, ids)
	if err != nil {
		return nil, err
	}
	return connect(w, users, func(u *ent.User) Edge[ent.User] {
		return Edge[ent.User]{Cursor: cursor{id: edges[u.ID]}.encode(l, owner), Node: u}
	}), nil
}

// SearchUsers is a page of users whose handle begins with the query or whose
// name contains it, whatever the case; all users for an empty one. The newest
// come first. Error: BadInput.
//
// Cost: users are looked through from the newest on until the page is full: all of
// them, when the query matches few.
func (f *Feed) SearchUsers(ctx context.Context, query string, p Page) (*Connection[ent.User], error) {
	query, err := cleanLine("The query", query, 0, maxSearch)
	if err != nil {
		return nil, err
	}
	w, err := f.open(p, listUsers, 0)
	if err != nil {
		return nil, err
	}
	q := f.db.User.Query().Order(ent.Desc(user.FieldID)).Limit(w.n + 1)
	if w.after != nil {
		q.Where(user.IDLT(w.after.id))
	}
	if query != "" {
		q.Where(user.Or(user.HandleHasPrefix(handleOf(query)), user.NameContainsFold(query)))
	}
	rows, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("search users: %w", err)
	}
	return connect(w, rows, func(u *ent.User) Edge[ent.User] {
		return Edge[ent.User]{Cursor: cursor{id: u.ID}.encode(listUsers, 0), Node: u}
	}), nil
}

// Users are the users of the ids, in their order; nil where there is none. It
// costs one query.
func (f *Feed) Users(ctx context.Context, ids []int64) ([]*ent.User, error) {
	rows, err := f.db.User.Query().Where(f.among(user.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return inOrder(ids, rows, func(u *ent.User) int64 { return u.ID }), nil
}

// User is the user of the handle. Errors: BadInput for what no handle can be,
// NotFound.
//
// Cost: one look-up by index.
func (f *Feed) User(ctx context.Context, handle string) (*ent.User, error) {
	handle, err := cleanHandle(handle)
	if err != nil {
		return nil, err
	}
	u, err := f.db.User.Query().Where(user.Handle(handle)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, errNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("find user: %w", err)
	}
	return u, nil
}
