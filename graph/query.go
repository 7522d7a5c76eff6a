package graph

import (
	"cmp"
	"context"
	"slices"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/graph/model"
)

func (r query) Node(ctx context.Context, id string) (ent.Node, error) {
	nodes, err := r.byIDs(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (r query) Nodes(ctx context.Context, ids []string) ([]ent.Node, error) {
	if err := r.fewEnough(ids); err != nil {
		return nil, err
	}
	return r.byIDs(ctx, ids)
}

// fewEnough refuses more ids than a page may have.
func (a api) fewEnough(ids []string) error {
	if most := a.Home.MaxPage(); len(ids) > most {
		return refusal.New(refusal.TooMany, "At most %d ids at a time.", most).In("ids").Beyond("pageSize", most, len(ids))
	}
	return nil
}

func (r query) Viewer(ctx context.Context) (*ent.User, error) { return r.viewer(ctx) }

// viewer returns the signed-in user, or nil for an anonymous caller.
func (a api) viewer(ctx context.Context) (*ent.User, error) {
	users, err := a.Directory.Users(ctx, []int64{Viewer(ctx).ID})
	if err != nil {
		return nil, err
	}
	return users[0], nil
}

func (r query) User(ctx context.Context, handle string) (*ent.User, error) {
	return orNull(r.Directory.User(ctx, handle))
}

func (r query) UserByExternalID(ctx context.Context, externalID string) (*ent.User, error) {
	id, err := orNull(r.Login.UserByExternalID(ctx, Viewer(ctx), externalID))
	if id == nil || err != nil {
		return nil, err
	}
	users, err := r.Directory.Users(ctx, []int64{*id})
	if err != nil {
		return nil, err
	}
	return users[0], nil
}

func (r query) Users(ctx context.Context, text *string, first *int, after *string) (*paging.Connection[ent.User], error) {
	c, err := r.Directory.Search(ctx, orZero(text), paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r query) SuggestedUsers(ctx context.Context, first *int) ([]*ent.User, error) {
	users, err := r.Feed.Suggestions(ctx, Viewer(ctx), first)
	usersTogether(ctx, users)
	return users, err
}

func (r query) Post(ctx context.Context, id string) (*ent.Post, error) {
	row, err := idOf("id", id, "Post")
	if err != nil {
		return nil, nil // it is the id of no post
	}
	return orNull(r.Feed.Post(ctx, Viewer(ctx), row))
}

func (r query) TaggedPosts(ctx context.Context, tag string, first *int, after *string) (*paging.Connection[ent.Post], error) {
	c, err := r.Feed.TaggedPosts(ctx, Viewer(ctx), tag, paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r query) PublicPosts(ctx context.Context, first *int, after *string) (*paging.Connection[ent.Post], error) {
	c, err := r.Feed.PublicPosts(ctx, Viewer(ctx), paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r query) Timeline(
	ctx context.Context, first *int, after *string, last *int, before *string, order *home.Order, ranking *string,
) (*paging.Connection[ent.Post], error) {
	c, err := r.Home.TimelineWith(ctx, Viewer(ctx), paging.Page{First: first, After: after, Last: last, Before: before}, orZero(order), orZero(ranking), visibility.Likes)
	return postPage(ctx, c, err)
}

// byIDs returns nodes of any type in the order of their ids. Users and relationships share a look-up.
func (a api) byIDs(ctx context.Context, texts []string) ([]ent.Node, error) {
	ids := make([]int64, len(texts))
	at := map[string][]int{}
	for i, text := range texts {
		if kind, id, ok := ent.ParseNodeID(text); ok { // for any other id there is no object
			ids[i], at[kind] = id, append(at[kind], i)
		}
	}
	own := at[model.RelationshipKind(Viewer(ctx).ID)] // relationships of the viewer; the ids name the users
	ofUsers := slices.Concat(at["User"], own)
	users, err := a.Directory.Users(ctx, pick(ids, ofUsers))
	if err != nil {
		return nil, err
	}
	posts, err := a.Feed.Posts(ctx, Viewer(ctx), pick(ids, at["Post"]))
	if err != nil {
		return nil, err
	}
	usersTogether(ctx, users)
	postsTogether(ctx, posts)
	nodes := make([]ent.Node, len(texts))
	for i, u := range users {
		switch {
		case u == nil:
		case i < len(at["User"]):
			nodes[ofUsers[i]] = u
		default:
			relationship, err := a.relationship(ctx, u)
			if err != nil {
				return nil, err
			}
			if relationship != nil { // it is nil for an anonymous viewer
				nodes[ofUsers[i]] = relationship
			}
		}
	}
	for i, p := range posts {
		if p != nil {
			nodes[at["Post"][i]] = p
		}
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

// orNull turns the error NotFound into a null result.
func orNull[T any](found *T, err error) (*T, error) {
	if refusal.CodeOf(err) == refusal.NotFound {
		return nil, nil
	}
	return found, err
}

func orZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// Limits returns the limits that the packages of feed enforce.
func (r query) Limits(context.Context) (*model.Limits, error) {
	return &model.Limits{
		PostLength: cmp.Or(r.MaxText, feed.DefaultMaxText), HandleLength: account.MaxHandle,
		NameLength: account.MaxName, BioLength: account.MaxBio,
		AvatarURLLength: account.MaxAvatarURL, AvatarHosts: append([]string{}, r.Avatars...), Links: account.MaxLinks, LinkLength: account.MaxLink,
		PostVersions: feed.MaxVersions, DataLength: feed.MaxData, DataDepth: feed.MaxDataDepth,
		PasswordMinLength: password.Min, PasswordLength: password.Max, PageSize: r.Home.MaxPage(), Rankings: r.Home.Rankings().Names(),
		MutedWordLength: feed.MaxMutedWord, MutedWords: feed.MaxMutedWords, MutedConversations: feed.MaxMutedConversations,
		IdempotencyKeyLength: feed.MaxKey,
	}, nil
}
