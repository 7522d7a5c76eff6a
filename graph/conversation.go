package graph

import (
	"context"
	"slices"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/conversation"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/graph/model"
)

// link returns the id of the post that a post names, or 0.
type link func(*ent.Post) int64

func parentOf(p *ent.Post) int64   { return p.ParentID }
func originalOf(p *ent.Post) int64 { return p.RepostOf }
func quotedBy(p *ent.Post) int64   { return p.QuoteOf }

func rootOf(p *ent.Post) int64 {
	if p.ParentID == 0 { // a repost of a reply has the root, too
		return 0
	}
	return p.RootID
}

func (r post) ReplyTo(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, "replyTo", parentOf)
}

func (r post) Root(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, "root", rootOf)
}

func (r post) RepostOf(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, columnOriginal, originalOf)
}

func (r post) Quote(ctx context.Context, p *ent.Post) (*model.Quote, error) {
	switch {
	case p.QuoteOf == 0:
		return nil, nil
	case p.QuoteWithdrawn:
		return &model.Quote{State: model.QuoteStateWithdrawn}, nil
	}
	quoted, err := r.linked(ctx, p, "quote", quotedBy)
	if quoted == nil || err != nil {
		return &model.Quote{State: model.QuoteStateNotAvailable}, err
	}
	return &model.Quote{State: model.QuoteStateShown, Post: quoted}, nil
}

// linked returns the post that p names, or nil if it names none or the viewer may not see it. It reads the
// posts that all posts of p's group name, and makes a group of them.
func (r post) linked(ctx context.Context, p *ent.Post, name string, to link) (*ent.Post, error) {
	if to(p) == 0 {
		return nil, nil
	}
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, name, func(posts []*ent.Post) ([]*ent.Post, error) {
		list, err := r.follow(ctx, posts, to)
		postsTogether(ctx, list)
		return list, err
	})
}

// follow reads the post that each of the posts names. An entry is nil if there is none or the viewer may
// not see it.
func (r post) follow(ctx context.Context, posts []*ent.Post, to link) ([]*ent.Post, error) {
	var ids []int64
	for _, p := range posts {
		if id := to(p); id != 0 {
			ids = append(ids, id)
		}
	}
	found, err := r.Feed.PostsWith(ctx, Viewer(ctx), ids, groupsOf(ctx).with)
	if err != nil {
		return nil, err
	}
	list := make([]*ent.Post, len(posts))
	for i, p := range posts {
		if to(p) != 0 {
			list[i], found = found[0], found[1:]
		}
	}
	return list, nil
}

// columnOriginal is the column of a group of posts with the originals of reposts.
const columnOriginal = "repostOf"

// originalsTogether makes one group of new posts and the originals of the reposts among them. A field that is
// shown of both is then read once.
func (r post) originalsTogether(ctx context.Context, posts []*ent.Post) error {
	originals, err := r.follow(ctx, posts, originalOf)
	if err != nil {
		return err
	}
	postsTogether(ctx, slices.Concat(posts, originals))
	if len(posts) > 0 {
		groupsOf(ctx).posts[posts[0]].group.fields.Once(columnOriginal, func() any {
			return column[*ent.Post]{values: originals} // an original is no repost and needs no value
		})
	}
	return nil
}

func (r post) Ancestors(ctx context.Context, p *ent.Post) ([]*ent.Post, error) {
	exec.Read(ctx)
	list, err := r.Conversations.Ancestors(ctx, Viewer(ctx), p)
	postsTogether(ctx, list)
	return list, err
}

func (r post) Replies(ctx context.Context, p *ent.Post, first *int, after *string, order *conversation.Order) (*paging.Connection[ent.Post], error) {
	exec.Read(ctx)
	c, err := r.Conversations.Replies(ctx, Viewer(ctx), p, orZero(order), paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r post) Conversation(ctx context.Context, p *ent.Post, first *int, after *string) (*paging.Connection[ent.Post], error) {
	return pageOf(ctx, p, first, after, r.Conversations.All)
}

func (r post) Reposts(ctx context.Context, p *ent.Post, first *int, after *string) (*paging.Connection[ent.Post], error) {
	return pageOf(ctx, p, first, after, r.Conversations.Reposts)
}

func (r post) Quotes(ctx context.Context, p *ent.Post, first *int, after *string) (*paging.Connection[ent.Post], error) {
	return pageOf(ctx, p, first, after, r.Conversations.Quotes)
}

func pageOf(ctx context.Context, p *ent.Post, first *int, after *string,
	read func(context.Context, session.Viewer, *ent.Post, paging.Page) (*paging.Connection[ent.Post], error),
) (*paging.Connection[ent.Post], error) {
	exec.Read(ctx)
	c, err := read(ctx, Viewer(ctx), p, paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r post) ViewerRepost(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, "viewerRepost", func(posts []*ent.Post) ([]*ent.Post, error) {
		list, err := r.Conversations.OwnReposts(ctx, Viewer(ctx), idsOf(posts, func(p *ent.Post) int64 { return p.ID }))
		postsTogether(ctx, list)
		return list, err
	})
}

// audiences returns who may reply to a post and quote it.
func (r post) audiences(ctx context.Context, p *ent.Post) (conversation.Audiences, error) {
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, "audiences", func(posts []*ent.Post) ([]conversation.Audiences, error) {
		return r.Conversations.Audiences(ctx, Viewer(ctx), posts)
	})
}

func (r post) ReplyAudience(ctx context.Context, p *ent.Post) (schema.Audience, error) {
	a, err := r.audiences(ctx, p)
	return a.Reply, err
}

func (r post) QuoteAudience(ctx context.Context, p *ent.Post) (schema.Audience, error) {
	a, err := r.audiences(ctx, p)
	return a.Quote, err
}

func (r post) ViewerCanReply(ctx context.Context, p *ent.Post) (bool, error) {
	a, err := r.audiences(ctx, p)
	return a.MayReply, err
}

func (r post) ViewerCanQuote(ctx context.Context, p *ent.Post) (bool, error) {
	a, err := r.audiences(ctx, p)
	return a.MayQuote, err
}

func (r post) Mentions(ctx context.Context, p *ent.Post) ([]*model.Mention, error) {
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, "mentions", func(posts []*ent.Post) ([][]*model.Mention, error) {
		found, err := r.Conversations.Mentions(ctx, posts)
		if err != nil {
			return nil, err
		}
		var users []int64
		for _, mentions := range found {
			for _, m := range mentions {
				users = append(users, m.User)
			}
		}
		people, err := r.Directory.Users(ctx, users)
		if err != nil {
			return nil, err
		}
		usersTogether(ctx, people)
		list := make([][]*model.Mention, len(posts))
		for i, mentions := range found {
			list[i] = []*model.Mention{}
			for _, m := range mentions {
				if people[0] != nil { // otherwise nobody sees the user
					list[i] = append(list[i], &model.Mention{User: people[0], Start: m.Start, End: m.End})
				}
				people = people[1:]
			}
		}
		return list, nil
	})
}

// Reason says why a post is in a timeline.
func (r timelineEdge) Reason(ctx context.Context, e *paging.Edge[ent.Post]) (*model.EntryReason, error) {
	author, err := post(r).Author(ctx, e.Node)
	if err != nil {
		return nil, err
	}
	kind := model.EntryKindPost
	switch {
	case e.Node.RepostOf != 0:
		kind = model.EntryKindRepost
	case e.Node.ParentID != 0:
		kind = model.EntryKindReply
	}
	return &model.EntryReason{Kind: kind, By: author, At: ids.TimeOf(e.Node.ID)}, nil
}

func (user) HomeReplies(ctx context.Context, u *ent.User) (*schema.HomeReplies, error) {
	if Viewer(ctx).ID != u.ID {
		return nil, nil
	}
	return &u.HomeReplies, nil
}

func (r mutation) Repost(ctx context.Context, in model.RepostInput) (*model.RepostPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	p, err := r.Feed.Repost(ctx, Viewer(ctx), id, in.Visibility)
	if err != nil {
		return nil, err
	}
	e, err := r.Home.Entry(ctx, Viewer(ctx), p)
	return &model.RepostPayload{Post: p, Edge: &e}, err
}

func (r mutation) UndoRepost(ctx context.Context, in model.PostInput) (*model.PostPayload, error) {
	return postPayload(ctx, in, r.Feed.UndoRepost)
}

func (r mutation) WithdrawQuote(ctx context.Context, in model.PostInput) (*model.PostPayload, error) {
	return postPayload(ctx, in, r.Feed.WithdrawQuote)
}

func (r mutation) SetAudience(ctx context.Context, in model.SetAudienceInput) (*model.PostPayload, error) {
	return postPayload(ctx, model.PostInput{PostID: in.PostID}, func(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
		return r.Feed.SetAudience(ctx, v, id, in.ReplyAudience, in.QuoteAudience)
	})
}

func postPayload(ctx context.Context, in model.PostInput, change func(context.Context, session.Viewer, int64) (*ent.Post, error)) (*model.PostPayload, error) {
	id, err := idOf("postId", in.PostID, "Post")
	if err != nil {
		return nil, err
	}
	p, err := change(ctx, Viewer(ctx), id)
	return &model.PostPayload{Post: p}, err
}
