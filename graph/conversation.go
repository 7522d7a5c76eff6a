package graph

import (
	"context"

	"github.com/99designs/gqlgen/graphql"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/conversation"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/graph/model"
)

func (r post) ReplyTo(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, "replyTo", func(p *ent.Post) int64 { return p.ParentID })
}

func (r post) Root(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, "root", func(p *ent.Post) int64 {
		if p.ParentID == 0 { // a repost of a reply has the root, too
			return 0
		}
		return p.RootID
	})
}

func (r post) RepostOf(ctx context.Context, p *ent.Post) (*ent.Post, error) {
	return r.linked(ctx, p, "repostOf", func(p *ent.Post) int64 { return p.RepostOf })
}

func (r post) Quote(ctx context.Context, p *ent.Post) (*model.Quote, error) {
	switch {
	case p.QuoteOf == 0:
		return nil, nil
	case p.QuoteWithdrawn:
		return &model.Quote{State: model.QuoteStateWithdrawn}, nil
	}
	quoted, err := r.linked(ctx, p, "quote", func(p *ent.Post) int64 { return p.QuoteOf })
	if quoted == nil || err != nil {
		return &model.Quote{State: model.QuoteStateNotAvailable}, err
	}
	return &model.Quote{State: model.QuoteStateShown, Post: quoted}, nil
}

// linked returns the post that a link of p names, or nil if it names none or the viewer may not see it.
// It reads the links of all posts that were read together.
func (r post) linked(ctx context.Context, p *ent.Post, name string, link func(*ent.Post) int64) (*ent.Post, error) {
	if link(p) == 0 {
		return nil, nil
	}
	exec.Read(ctx)
	g, v := groupsOf(ctx), Viewer(ctx)
	return field(g, g.posts, p, name, func(posts []*ent.Post) ([]*ent.Post, error) {
		list := make([]*ent.Post, len(posts))
		var ids []int64
		var at []int // the indexes of the ids in list
		for i, p := range posts {
			switch id := link(p); {
			case id == 0:
			case p.Original != nil && p.Original.ID == id:
				list[i] = p.Original
			default:
				ids, at = append(ids, id), append(at, i)
			}
		}
		found, err := r.Feed.PostsWith(ctx, v, ids, g.with)
		if err != nil {
			return nil, err
		}
		for i, p := range found {
			list[at[i]] = p
		}
		postsTogether(ctx, list)
		return list, nil
	})
}

func (r post) Ancestors(ctx context.Context, p *ent.Post) ([]*ent.Post, error) {
	exec.Read(ctx)
	list, err := r.Conversations.Ancestors(ctx, Viewer(ctx), p)
	postsTogether(ctx, list)
	return list, err
}

func (r post) Replies(ctx context.Context, p *ent.Post, first *int, after *string, order *conversation.Order) (*paging.Connection[ent.Post], error) {
	position := r.conversationPosition(ctx, p)
	exec.Read(ctx)
	c, err := r.Conversations.Replies(ctx, Viewer(ctx), p, orZero(order), paging.Page{First: first, After: after})
	return postPage(ctx, withPosition(c, position), err)
}

func (r post) Conversation(ctx context.Context, p *ent.Post, first *int, after *string) (*paging.Connection[ent.Post], error) {
	position := r.conversationPosition(ctx, p)
	c, err := pageOf(ctx, p, first, after, r.Conversations.All)
	return withPosition(c, position), err
}

// conversationPosition returns the position of a page of replies that is read after the call, or "" if it
// is not selected.
func (r post) conversationPosition(ctx context.Context, p *ent.Post) string {
	for _, f := range graphql.CollectFieldsCtx(ctx, []string{"PostConnection"}) {
		if f.Name == "position" {
			exec.Read(ctx)
			return r.Streams.ConversationPosition(ctx, Viewer(ctx), p)
		}
	}
	return ""
}

func withPosition(c *paging.Connection[ent.Post], position string) *paging.Connection[ent.Post] {
	if c != nil {
		c.Position = position
	}
	return c
}

// Position returns nil for a list that has no events.
func (repliesPage) Position(_ context.Context, c *paging.Connection[ent.Post]) (*string, error) {
	if c.Position == "" {
		return nil, nil
	}
	return &c.Position, nil
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

func (r post) ViewerHasMutedConversation(ctx context.Context, p *ent.Post) (bool, error) {
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, "viewerHasMutedConversation", func(posts []*ent.Post) ([]bool, error) {
		return r.Feed.MutesConversation(ctx, Viewer(ctx), posts)
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

func (r mutation) MuteConversation(ctx context.Context, in model.PostInput) (*model.PostPayload, error) {
	return postPayload(ctx, in, r.Feed.MuteConversation)
}

func (r mutation) UnmuteConversation(ctx context.Context, in model.PostInput) (*model.PostPayload, error) {
	return postPayload(ctx, in, r.Feed.UnmuteConversation)
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
