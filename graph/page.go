package graph

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"tideline/ent"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/tag"
	"tideline/feed/visibility"
	"tideline/graph/exec"
	"tideline/graph/model"
)

// Most requests ask for a page of the home timeline. Executing such a query field by field costs several
// times as much as reading from the stores. So graph compiles the selection of a document once into writers,
// which write the page without gqlgen. gqlgen executes any other selection. It also executes a page that
// could not be read, to find the error and its path.
//
// A field that needs a look-up is compiled from its resolver. So it is read for all posts of the page at
// once, as in any other query (batch.go).
//
// exec compiles only documents without directives (see exec.Config.Compile). So a selection is the same in every
// execution of a document, and the compiler ignores @skip and @include.

// writer writes one object, or one field of an object. After an error, what it has written is useless.
type writer[T any] func(ctx context.Context, w *bytes.Buffer, object T) error

// fieldCompiler compiles a field of a T.
type fieldCompiler[T any] func(c *compiler, f graphql.CollectedField) writer[T]

// fields has the fields of a type that can be compiled, by name.
type fields[T any] map[string]fieldCompiler[T]

var pageFields = fields[*model.PostConnection]{
	"unreadCount": resolved(timelineConnection.UnreadCount, graphql.MarshalInt),
	"position":    leaf(func(p *model.PostConnection) graphql.Marshaler { return graphql.MarshalString(p.Position) }),
	"pageInfo":    object(inMemory((*model.PostConnection).PageInfo), pageInfoFields),
	"edges":       list(inMemory(func(p *model.PostConnection) []*model.PostEdge { return pointers(p.Edges) }), edgeFields),
	"nodes":       list(inMemory((*model.PostConnection).Nodes), postFields),
}

var pageInfoFields = fields[*paging.PageInfo]{
	"hasNextPage":     leaf(func(p *paging.PageInfo) graphql.Marshaler { return graphql.MarshalBoolean(p.HasNextPage) }),
	"hasPreviousPage": leaf(func(p *paging.PageInfo) graphql.Marshaler { return graphql.MarshalBoolean(p.HasPreviousPage) }),
	"startCursor":     leaf(func(p *paging.PageInfo) graphql.Marshaler { return orNullString(p.StartCursor) }),
	"endCursor":       leaf(func(p *paging.PageInfo) graphql.Marshaler { return orNullString(p.EndCursor) }),
}

var edgeFields = fields[*model.PostEdge]{
	"cursor": leaf(func(e *model.PostEdge) graphql.Marshaler { return graphql.MarshalString(e.Cursor) }),
	"score":  leaf(func(e *model.PostEdge) graphql.Marshaler { return graphql.MarshalFloat(e.Score) }),
	"node":   object(inMemory(func(e *model.PostEdge) *ent.Post { return e.Node }), postFields),
	"reason": with(visibility.Author, object(timelineEdge.Reason, reasonFields)),
}

var reasonFields = fields[*model.EntryReason]{
	"kind": leaf(func(r *model.EntryReason) graphql.Marshaler { return r.Kind }),
	"by":   object(inMemory(func(r *model.EntryReason) *ent.User { return r.By }), userFields),
	"at":   leaf(func(r *model.EntryReason) graphql.Marshaler { return model.MarshalTime(r.At) }),
}

var postFields = fields[*ent.Post]{
	"id":                         leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalString(p.NodeID()) }),
	"text":                       leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalString(p.Text) }),
	"tags":                       leaf(func(p *ent.Post) graphql.Marshaler { return texts(tag.In(p.Text)) }),
	"visibility":                 leaf(func(p *ent.Post) graphql.Marshaler { return model.MarshalVisibility(p.Visibility) }),
	"hiddenByModerators":         leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalBoolean(p.HiddenByModerators()) }),
	"createdAt":                  leaf(func(p *ent.Post) graphql.Marshaler { return model.MarshalTime(ids.TimeOf(p.ID)) }),
	"editedAt":                   leaf(func(p *ent.Post) graphql.Marshaler { return orNullTime(p.Edited()) }),
	"likeCount":                  leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalInt(p.LikeCount) }),
	"replyCount":                 full(leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalInt(p.ReplyCount) })),
	"repostCount":                full(leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalInt(p.RepostCount) })),
	"quoteCount":                 full(leaf(func(p *ent.Post) graphql.Marshaler { return graphql.MarshalInt(p.QuoteCount) })),
	"data":                       with(visibility.Data, resolved(post.Data, model.MarshalObject)),
	"viewerHasLiked":             with(visibility.Likes, resolved(post.ViewerHasLiked, graphql.MarshalBoolean)),
	"author":                     with(visibility.Author, object(post.Author, userFields)),
	"replyAudience":              full(resolved(post.ReplyAudience, model.MarshalAudience)),
	"quoteAudience":              full(resolved(post.QuoteAudience, model.MarshalAudience)),
	"viewerCanReply":             full(resolved(post.ViewerCanReply, graphql.MarshalBoolean)),
	"viewerCanQuote":             full(resolved(post.ViewerCanQuote, graphql.MarshalBoolean)),
	"viewerHasMutedConversation": resolved(post.ViewerHasMutedConversation, graphql.MarshalBoolean),
	"mentions":                   list(post.Mentions, mentionFields),
}

// The fields of a post that lead to other posts. They are not in the literal above, because a variable must
// not refer to itself.
func init() {
	postFields["replyTo"] = object(post.ReplyTo, postFields)
	postFields["root"] = object(post.Root, postFields)
	postFields["viewerRepost"] = object(post.ViewerRepost, postFields)
	postFields["quote"] = full(object(post.Quote, quoteFields))
	postFields["repostOf"] = func(c *compiler, f graphql.CollectedField) writer[*ent.Post] {
		c.originals = true
		return object(post.RepostOf, postFields)(c, f)
	}
}

var quoteFields = fields[*model.Quote]{
	"state": leaf(func(q *model.Quote) graphql.Marshaler { return q.State }),
	"post":  object(inMemory(func(q *model.Quote) *ent.Post { return q.Post }), postFields),
}

var mentionFields = fields[*model.Mention]{
	"user":  object(inMemory(func(m *model.Mention) *ent.User { return m.User }), userFields),
	"start": leaf(func(m *model.Mention) graphql.Marshaler { return graphql.MarshalInt(m.Start) }),
	"end":   leaf(func(m *model.Mention) graphql.Marshaler { return graphql.MarshalInt(m.End) }),
}

var userFields = fields[*ent.User]{
	"id":                leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.NodeID()) }),
	"handle":            leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Handle) }),
	"name":              leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Name) }),
	"avatarUrl":         resolved(user.AvatarURL, orNullString),
	"data":              resolved(user.Data, model.MarshalObject),
	"bio":               profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Bio) }),
	"links":             profile(func(u *ent.User) graphql.Marshaler { return texts(u.LinkList()) }),
	"createdAt":         profile(func(u *ent.User) graphql.Marshaler { return model.MarshalTime(u.CreatedAt) }),
	"approvesFollowers": profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalBoolean(u.ApprovesFollowers) }),
	"followerCount":     profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalInt(u.FollowerCount) }),
	"followingCount":    profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalInt(u.FollowingCount) }),
}

// leaf compiles a field without a selection of its own.
func leaf[T any](value func(T) graphql.Marshaler) fieldCompiler[T] {
	return func(*compiler, graphql.CollectedField) writer[T] {
		return func(_ context.Context, w *bytes.Buffer, object T) error {
			value(object).MarshalGQL(w)
			return nil
		}
	}
}

// profile is leaf for a value of an author's profile. Profiles are read only if such a field is selected.
func profile(value func(*ent.User) graphql.Marshaler) fieldCompiler[*ent.User] {
	return with(visibility.Profile, leaf(value))
}

// with compiles a field that is read with the posts, in one statement.
func with[T any](read visibility.Fields, field fieldCompiler[T]) fieldCompiler[T] {
	return func(c *compiler, f graphql.CollectedField) writer[T] {
		c.with |= read
		return field(c, f)
	}
}

// full compiles a field of a post that visibility.Bare leaves out.
func full(field fieldCompiler[*ent.Post]) fieldCompiler[*ent.Post] {
	return func(c *compiler, f graphql.CollectedField) writer[*ent.Post] {
		c.full = true
		return field(c, f)
	}
}

// resolver is a type with resolvers.
type resolver interface{ ~struct{ api } }

// resolved compiles a field without a selection of its own from its resolver.
func resolved[R resolver, T, V any](resolve func(R, context.Context, T) (V, error), marshal func(V) graphql.Marshaler) fieldCompiler[T] {
	return func(c *compiler, _ graphql.CollectedField) writer[T] {
		return func(ctx context.Context, w *bytes.Buffer, object T) error {
			value, err := resolve(R{c.api}, ctx, object)
			if err == nil {
				marshal(value).MarshalGQL(w)
			}
			return err
		}
	}
}

// inMemory returns a resolver of a field that costs nothing to read.
func inMemory[T, V any](value func(T) V) func(query, context.Context, T) (V, error) {
	return func(_ query, _ context.Context, object T) (V, error) { return value(object), nil }
}

// errNull is the error of a field that the schema does not allow to be null.
var errNull = errors.New("a field is null that must not be")

// object compiles a field with a selection of its own from its resolver. known has the fields of its type.
func object[R resolver, T, V any](resolve func(R, context.Context, T) (*V, error), known fields[*V]) fieldCompiler[T] {
	return func(c *compiler, f graphql.CollectedField) writer[T] {
		write, required := compile(c, f, known), f.Definition.Type.NonNull
		return func(ctx context.Context, w *bytes.Buffer, object T) error {
			value, err := resolve(R{c.api}, ctx, object)
			switch {
			case err != nil:
				return err
			case value != nil:
				return write(ctx, w, value)
			case required:
				return errNull
			}
			w.WriteString("null")
			return nil
		}
	}
}

// list is object for a field whose value is a list. The list has no nulls.
func list[R resolver, T, V any](resolve func(R, context.Context, T) ([]*V, error), known fields[*V]) fieldCompiler[T] {
	return func(c *compiler, f graphql.CollectedField) writer[T] {
		write := compile(c, f, known)
		return func(ctx context.Context, w *bytes.Buffer, object T) error {
			values, err := resolve(R{c.api}, ctx, object)
			w.WriteByte('[')
			for i := 0; i < len(values) && err == nil; i++ {
				if i > 0 {
					w.WriteByte(',')
				}
				err = write(ctx, w, values[i])
			}
			w.WriteByte(']')
			return err
		}
	}
}

func pointers[T any](list []T) []*T {
	pointers := make([]*T, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	return pointers
}

func texts(list []string) graphql.Marshaler {
	all := graphql.Array{}
	for _, text := range list {
		all = append(all, graphql.MarshalString(text))
	}
	return all
}

func orNullString(s *string) graphql.Marshaler {
	if s == nil {
		return graphql.Null
	}
	return graphql.MarshalString(*s)
}

func orNullTime(t *time.Time) graphql.Marshaler {
	if t == nil {
		return graphql.Null
	}
	return model.MarshalTime(*t)
}

// compiler compiles the operation of one document, and records what must be read for a page.
type compiler struct {
	api
	op *graphql.OperationContext

	with      visibility.Fields // the fields to read with each post
	full      bool              // a field is selected that visibility.Bare leaves out
	originals bool              // the originals of reposts are selected
	failed    bool              // a field is selected that cannot be compiled
}

// compile returns the writer of the objects in a field. If a selected field cannot be compiled, it sets
// c.failed, and the writer must not be used.
func compile[T any](c *compiler, parent graphql.CollectedField, known fields[T]) writer[T] {
	typeName := parent.Definition.Type.Name()
	var keys []string
	var writers []writer[T]
	for _, f := range graphql.CollectFields(c.op, parent.Selections, []string{typeName, "Node"}) {
		compileField := known[f.Name]
		if f.Name == "__typename" {
			compileField = leaf(func(T) graphql.Marshaler { return graphql.MarshalString(typeName) })
		}
		if compileField == nil {
			c.failed = true
			return nil
		}
		keys, writers = append(keys, `"`+f.Alias+`":`), append(writers, compileField(c, f))
	}
	return func(ctx context.Context, w *bytes.Buffer, object T) error {
		for i, write := range writers {
			w.WriteByte("{,"[min(i, 1)]) // a brace before the first field, and a comma before the others
			w.WriteString(keys[i])
			if err := write(ctx, w, object); err != nil {
				return err
			}
		}
		w.WriteByte('}')
		return nil
	}
}

// compilePage compiles a query of a page of the home timeline. It returns nil if gqlgen must execute the
// query.
func (a api) compilePage(op *graphql.OperationContext, root graphql.CollectedField) exec.Compiled {
	if root.Name != "timeline" {
		return nil
	}
	c := &compiler{api: a, op: op}
	write := compile(c, root, pageFields)
	if c.failed {
		return nil
	}
	if !c.full {
		c.with |= visibility.Bare
	}
	return func(ctx context.Context, w *bytes.Buffer, arguments map[string]any) error {
		ctx = withGroups(ctx)
		groupsOf(ctx).with = c.with
		page, err := c.page(ctx, arguments)
		if err != nil {
			return err
		}
		return write(ctx, w, page)
	}
}

// page reads the page of posts.
func (c *compiler) page(ctx context.Context, arguments map[string]any) (*model.PostConnection, error) {
	order, _ := arguments["order"].(string)
	page, err := c.Home.TimelineWith(ctx, Viewer(ctx), paging.Page{
		First: given[int](arguments, "first"), After: given[string](arguments, "after"),
		Last: given[int](arguments, "last"), Before: given[string](arguments, "before"),
	}, home.Order(order), orZero(given[string](arguments, "ranking")), c.with)
	if err != nil {
		return nil, err
	}
	posts := page.Nodes()
	if c.originals { // in the same group: a field that is shown of both is read once
		for _, p := range page.Nodes() {
			posts = append(posts, p.Original)
		}
	}
	postsTogether(ctx, posts)
	return page, nil
}

// given returns the argument, or nil if it is not given or null.
func given[T any](arguments map[string]any, name string) *T {
	if v, ok := arguments[name].(T); ok {
		return &v
	}
	return nil
}
