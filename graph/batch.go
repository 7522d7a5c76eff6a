package graph

import (
	"context"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/internal/batch"
)

// Some fields need a look-up, such as a post's author. They are looked up for all objects that were read
// together, as soon as gqlgen resolves the field of the first object. A data loader would gather keys for a
// millisecond. A group does not wait, and the number of queries of a page does not depend on scheduling.

// group is a list of objects that were read together, with the fields looked up for them.
type group[T any] struct {
	objects []*T
	fields  batch.Results // a column for each name
}

// column is one field of all objects of a group, in their order.
type column[V any] struct {
	values []V
	err    error
}

// groups finds the group of an object. It lives for one execution: a query, a mutation, or
// one event of a subscription.
type groups struct {
	mu    sync.Mutex
	posts map[*ent.Post]place[ent.Post]
	users map[*ent.User]place[ent.User]

	reports map[*ent.Report]place[ent.Report]
	entries map[*ent.AuditEntry]place[ent.AuditEntry]

	unread batch.Results // one column

	with visibility.Fields // read with the posts that other posts name
}

// place is the index of an object in its group.
type place[T any] struct {
	group *group[T]
	index int
}

type groupsKey struct{}

func withGroups(ctx context.Context) context.Context {
	return context.WithValue(ctx, groupsKey{}, &groups{
		posts: map[*ent.Post]place[ent.Post]{}, users: map[*ent.User]place[ent.User]{},
		reports: map[*ent.Report]place[ent.Report]{}, entries: map[*ent.AuditEntry]place[ent.AuditEntry]{}, with: visibility.Likes,
	})
}

// unreadOnce returns the viewer's unread count. Within one query or event it counts at most once. In a
// mutation, where each field may change the count, and outside an execution, it counts on each call.
func unreadOnce(ctx context.Context, count func() (int, error)) (int, error) {
	g, executing := ctx.Value(groupsKey{}).(*groups)
	if !executing || graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
		return count()
	}
	found := g.unread.Once(nil, func() any {
		n, err := count()
		return column[int]{[]int{n}, err}
	}).(column[int])
	return found.values[0], found.err
}

func groupsOf(ctx context.Context) *groups { return ctx.Value(groupsKey{}).(*groups) }

// together adds a group of objects. It skips nil objects and objects that are in a group already.
func together[T any](g *groups, places map[*T]place[T], objects []*T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	made := new(group[T])
	for _, o := range objects {
		if _, known := places[o]; o != nil && !known {
			places[o] = place[T]{made, len(made.objects)}
			made.objects = append(made.objects, o)
		}
	}
}

// postsTogether adds a group of the posts, and one of the authors that were read with them.
func postsTogether(ctx context.Context, posts []*ent.Post) {
	g := groupsOf(ctx)
	together(g, g.posts, posts)
	var authors []*ent.User
	for _, p := range posts {
		if p != nil && p.Edges.Author != nil {
			authors = append(authors, p.Edges.Author)
		}
	}
	together(g, g.users, authors)
}

func usersTogether(ctx context.Context, users []*ent.User) {
	g := groupsOf(ctx)
	together(g, g.users, users)
}

// postPage returns the page and adds a group of its posts.
func postPage(ctx context.Context, c *paging.Connection[ent.Post], err error) (*paging.Connection[ent.Post], error) {
	if c != nil {
		postsTogether(ctx, c.Nodes())
	}
	return c, err
}

// userPage is postPage for users.
func userPage(ctx context.Context, c *paging.Connection[ent.User], err error) (*paging.Connection[ent.User], error) {
	if c != nil {
		usersTogether(ctx, c.Nodes())
	}
	return c, err
}

// field returns the named field of an object. It reads the field for the whole group at once.
func field[T, V any](
	g *groups, places map[*T]place[T], object *T, name string, read func(objects []*T) ([]V, error),
) (value V, err error) {
	g.mu.Lock()
	at, known := places[object]
	g.mu.Unlock()
	if !known {
		values, err := read([]*T{object})
		if err != nil {
			return value, err
		}
		return values[0], nil
	}
	c := at.group.fields.Once(name, func() any {
		values, err := read(at.group.objects)
		return column[V]{values, err}
	}).(column[V])
	if c.err != nil {
		return value, c.err
	}
	return c.values[at.index], nil
}
