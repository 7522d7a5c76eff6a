package graph

import (
	"context"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"tideline/ent"
	"tideline/feed/paging"
)

// A field that needs a look-up of its own, such as a post's author, is looked up
// for all objects that were read together as soon as gqlgen asks one of them for
// it. Unlike a data loader that gathers keys for a millisecond, it waits for
// nothing, and the number of queries of a page does not depend on scheduling.

// batch has objects that were read together, and the fields looked up for them.
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

// batches finds the batch of an object. It lives for one execution and remembers
// nothing from one request, or one event, to the next.
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

// unreadOnce returns the viewer's unread count. It counts once an execution, however often
// a document asks for it; each time outside of one, and in a mutation, whose every field may
// change the count.
func unreadOnce(ctx context.Context, count func() (int, error)) (int, error) {
	b, executing := ctx.Value(batchesKey{}).(*batches)
	if !executing || graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
		return count()
	}
	b.countUnread.Do(func() { b.unread, b.unreadErr = count() })
	return b.unread, b.unreadErr
}

func batchesOf(ctx context.Context) *batches { return ctx.Value(batchesKey{}).(*batches) }

// together makes a batch of objects; it leaves out nil ones.
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

// postPage returns the page and makes a batch of its posts.
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

// field returns the named field of an object. It reads the field for the whole
// batch at once.
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
