package graph

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"tideline/ent"
	"tideline/feed/account"
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
// exec compiles only documents without directives (see exec.Config.Compile). So a selection is the same in every
// execution of a document, and the compiler ignores @skip and @include.

// writer writes one object, or one field of an object.
type writer[T any] func(w *bytes.Buffer, object T)

// fields has the fields of a type that can be compiled. It maps their names to functions that compile them.
type fields[T any] map[string]func(c *compiler, f graphql.CollectedField) writer[T]

type (
	// shownPage is a page with the data that its writer needs.
	shownPage struct {
		*paging.Connection[ent.Post]
		posts  []shownPost // in the order of the page
		unread int         // the unread count; only if compiler.unread is set
	}
	// shownPost is a post of a page with the data that its writer needs.
	shownPost struct {
		*ent.Post
		edge   *paging.Edge[ent.Post]
		author *ent.User // only if the author is selected
		liked  bool      // whether the viewer likes the post; only if that is selected
	}
)

var pageFields = fields[*shownPage]{
	"unreadCount": func(c *compiler, _ graphql.CollectedField) writer[*shownPage] {
		c.unread = true
		return func(w *bytes.Buffer, p *shownPage) { graphql.MarshalInt(p.unread).MarshalGQL(w) }
	},
	"position": leaf(func(p *shownPage) graphql.Marshaler { return graphql.MarshalString(p.Position) }),
	"pageInfo": func(c *compiler, f graphql.CollectedField) writer[*shownPage] {
		write := compile(c, f, pageInfoFields)
		return func(w *bytes.Buffer, p *shownPage) { write(w, p.PageInfo()) }
	},
	"edges": func(c *compiler, f graphql.CollectedField) writer[*shownPage] {
		return list(compile(c, f, edgeFields))
	},
	"nodes": func(c *compiler, f graphql.CollectedField) writer[*shownPage] {
		return list(compile(c, f, postFields))
	},
}

var pageInfoFields = fields[*paging.PageInfo]{
	"hasNextPage":     leaf(func(p *paging.PageInfo) graphql.Marshaler { return graphql.MarshalBoolean(p.HasNextPage) }),
	"hasPreviousPage": leaf(func(p *paging.PageInfo) graphql.Marshaler { return graphql.MarshalBoolean(p.HasPreviousPage) }),
	"startCursor":     leaf(func(p *paging.PageInfo) graphql.Marshaler { return orNullString(p.StartCursor) }),
	"endCursor":       leaf(func(p *paging.PageInfo) graphql.Marshaler { return orNullString(p.EndCursor) }),
}

var edgeFields = fields[*shownPost]{
	"cursor": leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalString(p.edge.Cursor) }),
	"score":  leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalFloat(p.edge.Score) }),
	"node": func(c *compiler, f graphql.CollectedField) writer[*shownPost] {
		return compile(c, f, postFields)
	},
}

var postFields = fields[*shownPost]{
	"id":                 leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalString(p.NodeID()) }),
	"text":               leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalString(p.Text) }),
	"tags":               leaf(func(p *shownPost) graphql.Marshaler { return texts(tag.In(p.Text)) }),
	"visibility":         leaf(func(p *shownPost) graphql.Marshaler { return model.MarshalVisibility(p.Visibility) }),
	"hiddenByModerators": leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalBoolean(p.HiddenByModerators()) }),
	"createdAt":          leaf(func(p *shownPost) graphql.Marshaler { return model.MarshalTime(ids.TimeOf(p.ID)) }),
	"editedAt":           leaf(func(p *shownPost) graphql.Marshaler { return orNullTime(p.Edited()) }),
	"likeCount":          leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalInt(p.LikeCount) }),
	"replyCount":         leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalInt(p.ReplyCount) }),
	"repostCount":        leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalInt(p.RepostCount) }),
	"quoteCount":         leaf(func(p *shownPost) graphql.Marshaler { return graphql.MarshalInt(p.QuoteCount) }),
	"data": func(c *compiler, _ graphql.CollectedField) writer[*shownPost] {
		c.data = true
		return func(w *bytes.Buffer, p *shownPost) { w.WriteString(*p.Data) }
	},
	"viewerHasLiked": func(c *compiler, _ graphql.CollectedField) writer[*shownPost] {
		c.with |= visibility.Likes
		return func(w *bytes.Buffer, p *shownPost) { graphql.MarshalBoolean(p.liked).MarshalGQL(w) }
	},
	"author": func(c *compiler, f graphql.CollectedField) writer[*shownPost] {
		c.with |= visibility.Author
		write := compile(c, f, userFields)
		return func(w *bytes.Buffer, p *shownPost) { write(w, p.author) }
	},
}

var userFields = fields[*ent.User]{
	"id":     leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.NodeID()) }),
	"handle": leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Handle) }),
	"name":   leaf(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Name) }),
	"bio":    profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalString(u.Bio) }),
	"avatarUrl": func(c *compiler, _ graphql.CollectedField) writer[*ent.User] {
		return func(w *bytes.Buffer, u *ent.User) { orNullString(c.avatars.Of(u)).MarshalGQL(w) }
	},
	"links": profile(func(u *ent.User) graphql.Marshaler { return texts(u.LinkList()) }),
	"data": func(c *compiler, _ graphql.CollectedField) writer[*ent.User] {
		c.authorData = true
		return func(w *bytes.Buffer, u *ent.User) { w.WriteString(*u.Data) }
	},
	"createdAt":         profile(func(u *ent.User) graphql.Marshaler { return model.MarshalTime(u.CreatedAt) }),
	"approvesFollowers": profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalBoolean(u.ApprovesFollowers) }),
	"followerCount":     profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalInt(u.FollowerCount) }),
	"followingCount":    profile(func(u *ent.User) graphql.Marshaler { return graphql.MarshalInt(u.FollowingCount) }),
}

// leaf compiles a field without a selection of its own.
func leaf[T any](value func(T) graphql.Marshaler) func(*compiler, graphql.CollectedField) writer[T] {
	return func(*compiler, graphql.CollectedField) writer[T] {
		return func(w *bytes.Buffer, object T) { value(object).MarshalGQL(w) }
	}
}

// profile is leaf for a value of the author's profile. Profiles are read only if such a field is selected.
func profile(value func(*ent.User) graphql.Marshaler) func(*compiler, graphql.CollectedField) writer[*ent.User] {
	return func(c *compiler, f graphql.CollectedField) writer[*ent.User] {
		c.with |= visibility.Profile
		return leaf(value)(c, f)
	}
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

// list returns the writer of the list of a page's posts.
func list(write writer[*shownPost]) writer[*shownPage] {
	return func(w *bytes.Buffer, p *shownPage) {
		w.WriteByte('[')
		for i := range p.posts {
			if i > 0 {
				w.WriteByte(',')
			}
			write(w, &p.posts[i])
		}
		w.WriteByte(']')
	}
}

// compiler compiles the operation of one document, and records what must be read for a page.
type compiler struct {
	op      *graphql.OperationContext
	avatars account.AvatarHosts

	with       visibility.Fields // the fields to read with each post
	unread     bool              // the unread count is selected
	data       bool              // the app's own data of posts is selected
	authorData bool              // the app's own data of authors is selected
	failed     bool              // a field is selected that cannot be compiled
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
	return func(w *bytes.Buffer, object T) {
		for i, write := range writers {
			w.WriteByte("{,"[min(i, 1)]) // a brace before the first field, and a comma before the others
			w.WriteString(keys[i])
			write(w, object)
		}
		w.WriteByte('}')
	}
}

// compilePage compiles a query of a page of the home timeline. It returns nil if gqlgen must execute the
// query.
func (a api) compilePage(op *graphql.OperationContext, root graphql.CollectedField) exec.Compiled {
	if root.Name != "timeline" {
		return nil
	}
	c := &compiler{op: op, avatars: a.Avatars}
	write := compile(c, root, pageFields)
	if c.failed {
		return nil
	}
	return func(ctx context.Context, w *bytes.Buffer, arguments map[string]any) error {
		p, err := a.showPage(ctx, c, arguments)
		if err == nil {
			write(w, p)
		}
		return err
	}
}

// showPage reads the page, and the data that the compiled selection needs.
func (a api) showPage(ctx context.Context, c *compiler, arguments map[string]any) (*shownPage, error) {
	viewer := Viewer(ctx)
	order, _ := arguments["order"].(string)
	connection, err := a.Home.TimelineWith(ctx, viewer, paging.Page{
		First: given[int](arguments, "first"), After: given[string](arguments, "after"),
		Last: given[int](arguments, "last"), Before: given[string](arguments, "before"),
	}, home.Order(order), orZero(given[string](arguments, "ranking")), c.with)
	if err != nil {
		return nil, err
	}
	posts := connection.Nodes()
	p := &shownPage{Connection: connection, posts: make([]shownPost, len(posts))}
	for i, post := range posts {
		p.posts[i] = shownPost{Post: post, edge: &connection.Edges[i]}
	}
	if c.with&visibility.Author != 0 {
		if err := a.addAuthors(ctx, p.posts); err != nil {
			return nil, err
		}
	}
	if err := a.addData(ctx, c, p.posts); err != nil {
		return nil, err
	}
	if c.with&visibility.Likes != 0 {
		liked, err := a.Feed.Liked(ctx, viewer, posts)
		if err != nil {
			return nil, err
		}
		for i := range liked {
			p.posts[i].liked = liked[i]
		}
	}
	if c.unread {
		p.unread, err = a.Home.Unread.Count(ctx, viewer)
	}
	return p, err
}

// addAuthors sets the authors of posts, and looks up those that were not read with their posts.
func (a api) addAuthors(ctx context.Context, posts []shownPost) error {
	var missing []int64
	for i := range posts {
		if posts[i].author = posts[i].Edges.Author; posts[i].author == nil {
			missing = append(missing, posts[i].AuthorID)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	authors, err := a.Directory.Users(ctx, missing)
	if err != nil {
		return err
	}
	for i := range posts {
		if posts[i].author == nil {
			if posts[i].author, authors = authors[0], authors[1:]; posts[i].author == nil {
				return errors.New("a post without its author")
			}
		}
	}
	return nil
}

// addData reads the apps' own data of posts and authors, if it is selected.
func (a api) addData(ctx context.Context, c *compiler, shown []shownPost) error {
	if c.data {
		posts := make([]*ent.Post, len(shown))
		for i := range shown {
			posts[i] = shown[i].Post
		}
		data, err := a.Feed.Data(ctx, Viewer(ctx), posts)
		if err != nil {
			return err
		}
		for i := range data {
			posts[i].Data = data[i]
		}
	}
	if c.authorData {
		authors := make([]*ent.User, len(shown))
		for i := range shown {
			authors[i] = shown[i].author
		}
		data, err := a.Directory.Data(ctx, idsOf(authors, func(u *ent.User) int64 { return u.ID }))
		if err != nil {
			return err
		}
		for i := range data {
			authors[i].Data = data[i]
		}
	}
	return nil
}

// given returns the argument, or nil if it is not given or null.
func given[T any](arguments map[string]any, name string) *T {
	if v, ok := arguments[name].(T); ok {
		return &v
	}
	return nil
}
