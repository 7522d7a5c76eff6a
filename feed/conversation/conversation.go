// Package conversation reads what belongs to a post: its replies, the posts that it replies to, its
// reposts, quotes and mentions.
//
// Every post that it returns has passed the rule of package visibility for the viewer.
package conversation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/timeline"
)

// Order is an order of replies.
type Order string

// The orders.
const (
	Oldest Order = "OLDEST" // oldest first
	Newest Order = "NEWEST" // newest first
	Top    Order = "TOP"    // most likes and replies first, of the newest MostTop replies
)

const (
	// MostTop is how many of the newest replies the order Top has.
	MostTop = 500
	// MostAncestors is how many ancestors of a post Ancestors returns.
	MostAncestors = 50
)

// Conversations reads conversations. It is safe for concurrent use.
type Conversations struct {
	db      *ent.Client
	posts   *visibility.Reader
	maxPage int
}

// New returns Conversations whose pages have at most maxPage posts.
func New(db *ent.Client, posts *visibility.Reader, maxPage int) *Conversations {
	return &Conversations{db, posts, maxPage}
}

// Replies returns a page of the direct replies to a post. In the order Top, a page is made of the
// numbers of likes and replies at the moment, so a reply may be missed or seen twice if they change
// between two pages. The page may be shorter than requested, or empty, even if the list continues
// after it. Error: BadInput.
//
// Cost: an index range the size of the page, and its posts by primary key. A run of posts that the
// viewer may not see adds the same cost again for twice as many posts, up to visibility.MostLooked
// posts in total. Top reads MostTop posts.
func (c *Conversations) Replies(ctx context.Context, v session.Viewer, p *ent.Post, order Order, page paging.Page) (*paging.Connection[ent.Post], error) {
	switch order {
	case Top:
		return c.top(ctx, v, p, page)
	case Newest:
		return c.list(ctx, v, p.ID, visibility.Parent, paging.NewestReplies, false, page)
	}
	return c.list(ctx, v, p.ID, visibility.Parent, paging.Replies, true, page)
}

// All returns a page of all replies in the conversation of a post, oldest first. The page may be
// short, as a page of Replies may be. Error: BadInput.
//
// Cost: as Replies.
func (c *Conversations) All(ctx context.Context, v session.Viewer, p *ent.Post, page paging.Page) (*paging.Connection[ent.Post], error) {
	return c.list(ctx, v, cmp.Or(p.RootID, p.ID), visibility.Root, paging.Conversation, true, page)
}

// Reposts returns a page of the reposts of a post, newest first. The page may be short, as a page
// of Replies may be. Error: BadInput.
//
// Cost: as Replies.
func (c *Conversations) Reposts(ctx context.Context, v session.Viewer, p *ent.Post, page paging.Page) (*paging.Connection[ent.Post], error) {
	return c.list(ctx, v, p.ID, visibility.Original, paging.Reposts, false, page)
}

// Quotes returns a page of the posts that quote a post, newest first, without withdrawn quotes. The
// page may be short, as a page of Replies may be. Error: BadInput.
//
// Cost: as Replies.
func (c *Conversations) Quotes(ctx context.Context, v session.Viewer, p *ent.Post, page paging.Page) (*paging.Connection[ent.Post], error) {
	return c.list(ctx, v, p.ID, visibility.Quoted, paging.Quotes, false, page)
}

// list returns a page of the posts whose link names the post with the id.
func (c *Conversations) list(ctx context.Context, v session.Viewer, id int64, by visibility.Link, l paging.List, ascending bool, page paging.Page) (*paging.Connection[ent.Post], error) {
	w, err := paging.Open(page, l, id, c.maxPage)
	if err != nil {
		return nil, err
	}
	r := timeline.Range{Limit: w.N + 1, Ascending: ascending}
	if w.After != nil {
		if ascending {
			r.After = w.After.ID
		} else {
			r.Before = w.After.ID
		}
	}
	from, stopped := c.posts.Linked(by, id)
	posts, err := visibility.Fill(ctx, visibility.Direct, v.ID, r, from)
	if err != nil {
		return nil, err
	}
	list := paging.ConnectBy(w, posts, l, id, func(p *ent.Post) int64 { return p.ID })
	list.Stopped(w, *stopped, l, id)
	return list, nil
}

// top returns a page of replies in the order Top.
func (c *Conversations) top(ctx context.Context, v session.Viewer, p *ent.Post, page paging.Page) (*paging.Connection[ent.Post], error) {
	w, err := paging.Open(page, paging.TopReplies, p.ID, c.maxPage)
	if err != nil {
		return nil, err
	}
	from, _ := c.posts.Linked(visibility.Parent, p.ID)
	posts, err := visibility.Fill(ctx, visibility.Direct, v.ID, timeline.Range{Limit: MostTop}, from)
	if err != nil {
		return nil, err
	}
	weight := func(p *ent.Post) float64 { return float64(p.LikeCount + p.ReplyCount) }
	before := func(aWeight float64, a int64, bWeight float64, b int64) int {
		return cmp.Or(cmp.Compare(bWeight, aWeight), cmp.Compare(a, b))
	}
	slices.SortFunc(posts, func(a, b *ent.Post) int { return before(weight(a), a.ID, weight(b), b.ID) })
	if w.After != nil {
		posts = slices.DeleteFunc(posts, func(p *ent.Post) bool { return before(weight(p), p.ID, w.After.Score, w.After.ID) <= 0 })
	}
	posts = posts[:min(len(posts), w.N+1)]
	return paging.Connect(w, posts, func(q *ent.Post) paging.Edge[ent.Post] {
		return paging.Edge[ent.Post]{Cursor: paging.Cursor{Score: weight(q), ID: q.ID}.Encode(paging.TopReplies, p.ID), Node: q}
	}), nil
}

// Ancestors returns the posts that lead from the root to a reply, root first, without those that the
// viewer may not see. If there are more than MostAncestors, it returns the nearest ones.
//
// Cost: none for a post that is not a reply; otherwise two queries, with one look-up per ancestor.
func (c *Conversations) Ancestors(ctx context.Context, v session.Viewer, p *ent.Post) ([]*ent.Post, error) {
	if p.ParentID == 0 {
		return []*ent.Post{}, nil
	}
	ids, err := c.posts.AncestorIDs(ctx, p.ParentID, MostAncestors)
	if err != nil {
		return nil, err
	}
	slices.Reverse(ids)
	list, err := c.posts.Posts(ctx, visibility.Direct, v.ID, ids, visibility.Likes)
	if err != nil {
		return nil, err
	}
	return append([]*ent.Post{}, slices.DeleteFunc(list, func(p *ent.Post) bool { return p == nil })...), nil
}

// OwnReposts returns the viewer's repost of each of the posts, or nil.
//
// Cost: two queries, with one look-up per post.
func (c *Conversations) OwnReposts(ctx context.Context, v session.Viewer, ids []int64) ([]*ent.Post, error) {
	list := make([]*ent.Post, len(ids))
	if v.ID == 0 {
		return list, nil
	}
	found, err := c.db.Post.Query().Where(post.AuthorID(v.ID), rows.Among(post.FieldRepostOf, ids)).Select(post.FieldID, post.FieldRepostOf).All(ctx)
	if err != nil || len(found) == 0 {
		return list, errs.Wrap(err, "find reposts")
	}
	reposts, err := c.posts.Posts(ctx, visibility.Direct, v.ID, rows.PostIDs(found), visibility.Likes)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		for _, p := range reposts {
			if p != nil && p.RepostOf == id {
				list[i] = p
			}
		}
	}
	return list, nil
}

// Audiences says who may reply to a post and who may quote it, and whether the viewer may.
type Audiences struct {
	Reply, Quote       schema.Audience
	MayReply, MayQuote bool
}

// Audiences returns the audiences of posts that the viewer was shown. The audiences of a root also hold
// for its replies, and the audiences of an original for its reposts.
//
// Cost: no query if the posts are roots that let everyone reply and quote. Otherwise up to four
// queries, with some look-ups a post.
func (c *Conversations) Audiences(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]Audiences, error) {
	roots, err := c.roots(ctx, v, posts)
	if err != nil {
		return nil, err
	}
	var authors, mentioning []int64
	for _, root := range roots {
		for _, a := range []schema.Audience{audienceOf(root.ReplyAudience), audienceOf(root.QuoteAudience)} {
			switch a {
			case schema.OnlyFollowers, schema.OnlyMutuals:
				authors = append(authors, root.AuthorID)
			case schema.OnlyMentioned:
				mentioning = append(mentioning, root.ID)
			}
		}
	}
	relations, err := c.posts.Relations(ctx, v.ID, authors)
	if err != nil {
		return nil, err
	}
	mentioned := map[int64]bool{}
	if v.ID != 0 && len(mentioning) > 0 {
		list, err := c.db.PostMention.Query().Where(postmention.UserID(v.ID), rows.Among(postmention.FieldPostID, mentioning)).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("find mentions: %w", err)
		}
		for _, m := range list {
			mentioned[m.PostID] = true
		}
	}
	list := make([]Audiences, len(posts))
	for i, p := range posts {
		root := roots[i]
		admits := func(a schema.Audience) bool {
			switch {
			case v.ID == 0 || root == gone:
				return false
			case root.AuthorID == v.ID:
				return true
			}
			return visibility.InAudience(a, relations[root.AuthorID], mentioned[root.ID])
		}
		list[i] = Audiences{Reply: audienceOf(root.ReplyAudience), Quote: audienceOf(root.QuoteAudience)}
		list[i].MayReply = admits(list[i].Reply)
		list[i].MayQuote = admits(list[i].Quote) || root != gone && v.ID != 0 && visibility.WroteOriginal(p, v.ID)
	}
	return list, nil
}

// gone stands for a root that the viewer may not see.
var gone = &ent.Post{ReplyAudience: schema.OnlyAuthors, QuoteAudience: schema.OnlyAuthors}

// roots returns the post whose audiences hold for each of the posts, or gone.
func (c *Conversations) roots(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]*ent.Post, error) {
	ids := make([]int64, 0, len(posts))
	for _, p := range posts {
		if visibility.DependsOnOthers(p) {
			ids = append(ids, cmp.Or(p.RootID, p.RepostOf))
		}
	}
	found, err := c.posts.Posts(ctx, visibility.Direct, v.ID, ids, 0)
	if err != nil {
		return nil, err
	}
	list := make([]*ent.Post, len(posts))
	for i, p := range posts {
		list[i] = p
		if visibility.DependsOnOthers(p) {
			if list[i], found = found[0], found[1:]; list[i] == nil {
				list[i] = gone
			}
		}
	}
	return list, nil
}

func audienceOf(a schema.Audience) schema.Audience { return cmp.Or(a, schema.Everyone) }

// Mention is a mention of a user in the text of a post.
type Mention struct {
	User       int64
	Start, End int // code points of the text
}

// Mentions returns the mentions in the posts, in their order in the text.
//
// Cost: one query by index.
func (c *Conversations) Mentions(ctx context.Context, posts []*ent.Post) ([][]Mention, error) {
	list := make([][]Mention, len(posts))
	found, err := c.db.PostMention.Query().Where(rows.Among(postmention.FieldPostID, rows.PostIDs(posts))).
		Order(ent.Asc(postmention.FieldPostID), ent.Asc(postmention.FieldStart)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read mentions: %w", err)
	}
	at := map[int64]int{}
	for i, p := range posts {
		at[p.ID] = i
	}
	for _, m := range found {
		i := at[m.PostID]
		list[i] = append(list[i], Mention{m.UserID, m.Start, m.End})
	}
	for i, p := range posts { // a post may be asked for twice
		list[i] = list[at[p.ID]]
	}
	return list, nil
}
