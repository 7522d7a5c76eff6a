package graph

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

type fields = map[string]exec.Field

// root makes a field of Query or Mutation out of a function.
func root[T any](resolve func(ctx context.Context, v feed.Viewer, args exec.Args) (T, error)) exec.Field {
	return exec.One(func(ctx context.Context, _ exec.Root, args exec.Args) (T, error) {
		return resolve(ctx, Viewer(ctx), args)
	})
}

func (a api) query() fields {
	return fields{
		"node":  root(a.node),
		"nodes": root(a.nodes),
		"viewer": root(func(ctx context.Context, v feed.Viewer, _ exec.Args) (*ent.User, error) {
			return a.userByID(ctx, v.ID)
		}),
		"user": root(func(ctx context.Context, _ feed.Viewer, args exec.Args) (*ent.User, error) {
			return orNull(a.feed.User(ctx, *args.String("handle")))
		}),
		"users": root(func(ctx context.Context, _ feed.Viewer, args exec.Args) (*feed.Connection[ent.User], error) {
			return a.feed.SearchUsers(ctx, orEmpty(args.String("query")), page(args))
		}),
		"post": root(func(ctx context.Context, v feed.Viewer, args exec.Args) (*ent.Post, error) {
			id, err := idArg(args, "id", "Post")
			if err != nil {
				return nil, err
			}
			return orNull(a.feed.Post(ctx, v, id))
		}),
		"timeline": root(func(ctx context.Context, v feed.Viewer, args exec.Args) (*feed.Connection[ent.Post], error) {
			return a.feed.Timeline(ctx, v, page(args), feed.Order(orEmpty(args.String("order"))))
		}),
	}
}

func (a api) node(ctx context.Context, v feed.Viewer, args exec.Args) (any, error) {
	nodes, err := a.byIDs(ctx, v, []string{*args.String("id")})
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (a api) nodes(ctx context.Context, v feed.Viewer, args exec.Args) ([]any, error) {
	ids := args.Strings("ids")
	if len(ids) > feed.MaxPage {
		return nil, &feed.Error{Code: feed.BadInput, Message: fmt.Sprintf("At most %d ids at a time.", feed.MaxPage)}
	}
	return a.byIDs(ctx, v, ids)
}

// byIDs finds nodes of any type, in the order of their ids, in one look-up a type.
func (a api) byIDs(ctx context.Context, v feed.Viewer, texts []string) ([]any, error) {
	ids := make([]int64, len(texts))
	at := map[string][]int{}
	for i, text := range texts {
		kind, id, err := parseID(text)
		if err != nil {
			return nil, err
		}
		ids[i], at[kind] = id, append(at[kind], i)
	}
	nodes := make([]any, len(texts))
	users, err := a.feed.Users(ctx, pick(ids, at["User"]))
	if err != nil {
		return nil, err
	}
	posts, err := a.feed.Posts(ctx, v, pick(ids, at["Post"]))
	if err != nil {
		return nil, err
	}
	for i, u := range users {
		nodes[at["User"][i]] = u
	}
	for i, p := range posts {
		nodes[at["Post"][i]] = p
	}
	return nodes, nil
}

func pick(ids []int64, at []int) []int64 {
	picked := make([]int64, len(at))
	for i, j := range at {
		picked[i] = ids[j]
	}
	return picked
}

// userByID is the user, or null where there is none.
func (a api) userByID(ctx context.Context, id int64) (*ent.User, error) {
	users, err := a.feed.Users(ctx, []int64{id})
	if err != nil {
		return nil, err
	}
	return users[0], nil
}

// orNull answers a query for what is not there with null, as GraphQL does.
func orNull[T any](found *T, err error) (*T, error) {
	if feed.CodeOf(err) == feed.NotFound {
		return nil, nil
	}
	return found, err
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// page reads the arguments of a connection.
func page(args exec.Args) feed.Page {
	return feed.Page{First: args.Int("first"), Last: args.Int("last"), After: args.String("after"), Before: args.String("before")}
}
