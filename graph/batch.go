package graph

import (
	"context"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"tideline/ent"
	"tideline/feed/paging"
)

// Some fields need a look-up, such as a post's author. They are looked up for all objects that were read
// together, as soon as gqlgen resolves the field of the first object. A data loader would gather keys for a
// millisecond. A batch does not wait, and the number of queries of a page does not depend on scheduling.

// batch is a list of objects that were read together, with the fields looked up for them.
type batch[T any] struct {
	objects []*T
	mu      sync.Mutex
	fields  map[string]*column
}

// column is one field of all objects of a batch.
type column struct {
	once   sync.Once
	values any // []V, in the order of the objects
	err    error
}

// batches finds the batch of an object. It lives for one execution: a query, a mutation, or
// one event of a subscription.
type batches struct {
	mu    sync.Mutex
	posts map[*ent.Post]place[ent.Post]
	users map[*ent.User]place[ent.User]

	reports map[*ent.Report]place[ent.Report]

	countUnread sync.Once
	unread      int
	unreadErr   error
}

// place is the index of an object in its batch.
type place[T any] struct {
	batch *batch[T]
	index int
}

type batchesKey struct{}

func withBatches(ctx context.Context) context.Context {
	return context.WithValue(ctx, batchesKey{}, &batches{
		posts: map[*ent.Post]place[ent.Post]{}, users: map[*ent.User]place[ent.User]{},
		reports: map[*ent.Report]place[ent.Report]{},
	})
}

// unreadOnce returns the viewer's unread count. Within one query or event it counts at most once. In a
// mutation, where each field may change the count, and outside an execution, it counts on each call.
func unreadOnce(ctx context.Context, count func() (int, error)) (int, error) {
	b, executing := ctx.Value(batchesKey{}).(*batches)
	if !executing || graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
		return count()
	}
	b.countUnread.Do(func() { b.unread, b.unreadErr = count() })
	return b.unread, b.unreadErr
}

func batchesOf(ctx context.Context) *batches { return ctx.Value(batchesKey{}).(*batches) }

// together adds a batch of objects. It skips nil objects and objects that are in a batch already.
func together[T any](b *batches, places map[*T]place[T], objects []*T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	made := &batch[T]{fields: map[string]*column{}}
	for _, o := range objects {
		if _, known := places[o]; o != nil && !known {
			places[o] = place[T]{made, len(made.objects)}
			made.objects = append(made.objects, o)
		}
	}
}

func postsTogether(ctx context.Context, posts []*ent.Post) {
	b := batchesOf(ctx)
	together(b, b.posts, posts)
}

func usersTogether(ctx context.Context, users []*ent.User) {
	b := batchesOf(ctx)
	together(b, b.users, users)
}

// postPage returns the page and adds a batch of its posts.
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

// field returns the named field of an object. It reads the field for the whole batch at once.
func field[T, V any](
	b *batches, places map[*T]place[T], object *T, name string, read func(objects []*T) ([]V, error),
) (value V, err error) {
	b.mu.Lock()
	at, known := places[object]
	b.mu.Unlock()
	if !known {
		values, err := read([]*T{object})
		if err != nil {
			return value, err
		}
		return values[0], nil
	}
	at.batch.mu.Lock()
	c := at.batch.fields[name]
	if c == nil {
		c = new(column)
		at.batch.fields[name] = c
	}
	at.batch.mu.Unlock()
	c.once.Do(func() { c.values, c.err = read(at.batch.objects) })
	if c.err != nil {
		return value, c.err
	}
	return c.values.([]V)[at.index], nil
}
