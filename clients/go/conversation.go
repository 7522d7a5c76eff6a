package tideline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrNotFound means that the post of a Conversation does not exist, or that the client's user may not see
// it.
var ErrNotFound = errors.New("there is no such post")

// Orders of replies.
const (
	Oldest = "OLDEST"
	Newest = "NEWEST"
	Top    = "TOP" // most likes and replies first; replies that come later are put in front
)

// ConversationOptions configures a conversation. The zero value works if P is Post.
type ConversationOptions[P any] struct {
	// Fields are the fields to select of each post. They are decoded into a P. Defaults to PostFields.
	Fields string
	// Order is Oldest, Newest or Top. Defaults to Oldest.
	Order string
	// PageSize is how many replies one read requests. Defaults to 20, which every server allows.
	PageSize int
	// Most is how many replies are kept when events add more, and how many Read reads. Beyond it the last
	// ones are dropped; ReadNext brings them back and raises the bound until the next Read. Defaults to 500.
	Most int
	// Backoff returns how long to wait before try n, counted from 0, after a failure. By default it starts at
	// half a second and doubles up to 15 s, each randomly varied by up to half.
	Backoff func(n int) time.Duration
	// OnEvent is called for each event in order, before the event changes the conversation, also for replies
	// to other posts than this one. It must not call Read, ReadNext or Reply of the conversation, because
	// they wait for it.
	OnEvent func(ConversationEvent[P])
}

// Kinds of events of a conversation.
const (
	ConversationPostAdded   = "ConversationPostAdded"
	ConversationPostUpdated = "ConversationPostUpdated"
	ConversationPostRemoved = "ConversationPostRemoved"
	ConversationInvalidated = "ConversationInvalidated"
)

// ConversationEvent is a change of a conversation.
type ConversationEvent[P any] struct {
	// Kind is one of the constants above. A later server may send other kinds, which change nothing.
	Kind string
	// Post is the post of a ConversationPostAdded or ConversationPostUpdated. For a ConversationPostRemoved
	// it has only the ID.
	Post Entry[P]
	// ReplyTo is the id of the post that Post replies to; "" if there is none, or the user may not see it.
	ReplyTo string
	// Reason is a text for the log, of a ConversationInvalidated.
	Reason string

	position string
}

// ConversationSnapshot is the state of a conversation at a moment. Its entries are shared and must not be
// modified.
type ConversationSnapshot[P any] struct {
	// Post is the post. It is nil until it has been read, and when it is not found.
	Post *Entry[P]
	// Ancestors are the posts that lead to it, from the root down.
	Ancestors []Entry[P]
	// Replies are the direct replies in the chosen order. Each occurs once.
	Replies []Entry[P]
	// More says whether further replies can be read.
	More bool
	// Live says whether changes arrive at once: the conversation is connected, and need not be read again.
	Live bool
	// Err is the last error while the conversation is not live. It is ErrNotFound if there is no such post.
	Err error
}

// Conversation is a post with the posts that lead to it and its direct replies. It shows no reply twice, and
// no reply whose removal was reported. If events may have been missed, it reads the replies again. It is safe
// for concurrent use.
//
// The price of a page of replies does not depend on the size of the whole conversation. The first page also has
// the ancestors, at most 50.
type Conversation[P any] struct {
	live
	options ConversationOptions[P]

	// live.mu guards the following fields.
	id         string          // of the post; for a repost, of its original
	around     []Entry[P]      // the ancestors, then the post
	everAround map[string]bool // the ids of the posts that are or were in around
	held       held[P]         // the replies
}

// NewConversation returns the conversation at a post. A repost stands for its original. It reads nothing yet.
// Events need a signed-in user.
func NewConversation[P any](client *Client, postID string, options ConversationOptions[P]) *Conversation[P] {
	options.Fields = cmp.Or(options.Fields, PostFields)
	options.Order = cmp.Or(options.Order, Oldest)
	options.PageSize = cmp.Or(options.PageSize, 20)
	options.Most = cmp.Or(options.Most, 500)
	c := &Conversation[P]{options: options, id: postID, everAround: map[string]bool{}}
	c.begin(c, client, options.Backoff)
	return c
}

// Snapshot returns the current state.
func (c *Conversation[P]) Snapshot() ConversationSnapshot[P] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := ConversationSnapshot[P]{Replies: c.held.Entries, More: c.held.Next != "", Live: c.open && !c.held.mustRead(), Err: c.err}
	if at := c.aroundIndex(c.id); at >= 0 {
		s.Post, s.Ancestors = &c.around[at], c.around[:at]
	}
	return s
}

// ReadNext appends the next page of replies, if there is one. If events may have been missed, it reads the
// replies again instead. Errors: as Read.
func (c *Conversation[P]) ReadNext(ctx context.Context) error {
	return c.readNext(ctx, func() error {
		c.mu.Lock()
		next := c.held.Next
		c.mu.Unlock()
		if next == "" {
			return nil
		}
		p, _, err := c.page(ctx, next)
		if err == nil {
			c.change(func() { c.held.landOlder(p) })
		}
		return err
	})
}

// Reply creates a reply to the post and shows it. more has further fields of CreatePostInput, such as
// visibility, or idempotencyKey for a call that may be repeated. The server forgets the key 24 hours after it
// has created the post: the same call then creates a second post. Events wait until Reply returns. Errors:
// the errors of Client.Query; the conversation then stays unchanged.
func (c *Conversation[P]) Reply(ctx context.Context, text string, more map[string]any) (reply Entry[P], err error) {
	err = c.inTurn(ctx, func() error {
		c.mu.Lock()
		input := map[string]any{"text": text, "replyTo": c.id}
		c.mu.Unlock()
		maps.Copy(input, more)
		var data struct{ CreatePost struct{ Post node[P] } }
		err := c.client.Query(ctx, `mutation Reply($input: CreatePostInput!) { createPost(input: $input) { post { `+c.fields()+` } } }`,
			map[string]any{"input": input}, &data)
		if err != nil {
			return err
		}
		reply = data.CreatePost.Post.in(c.options.Order)
		c.change(func() { c.held.show(reply) })
		return nil
	})
	return reply, err
}

// read reads the post, its ancestors and the first page, or everything that is shown.
func (c *Conversation[P]) read(ctx context.Context) error {
	shown := c.Snapshot().Replies
	p, around, err := c.page(ctx, "")
	if err != nil {
		return err
	}
	fresh := held[P]{ranked: c.options.Order == Top}
	fresh.land(p, "", c.options.Most)
	reached := func() bool {
		if fresh.ranked {
			return len(fresh.Entries) >= len(shown)
		}
		return len(shown) == 0 || fresh.End <= shown[len(shown)-1].Score
	}
	for fresh.Next != "" && len(fresh.Entries) < c.options.Most && !reached() {
		if p, _, err = c.page(ctx, fresh.Next); err != nil {
			return err
		}
		fresh.landOlder(p)
	}
	c.change(func() {
		c.around, c.held = around, fresh
		for _, e := range around {
			c.everAround[e.ID] = true
		}
	})
	return nil
}

// page reads the page of replies after a cursor, and without a cursor also the ancestors and the post. If the
// post is not found, it clears the conversation and returns ErrNotFound.
func (c *Conversation[P]) page(ctx context.Context, after string) (p page[P], around []Entry[P], err error) {
	c.mu.Lock()
	id := c.id
	c.mu.Unlock()
	beside := ""
	if after == "" {
		beside = c.fields() + " repostOf { id } ancestors { " + c.fields() + " }"
	}
	var data struct{ Post *conversationPage[P] }
	err = c.client.Query(ctx, `query Conversation($id: ID!, $first: Int!, $after: Cursor, $order: ReplyOrder!) { post(id: $id) { `+beside+`
		replies(first: $first, after: $after, order: $order) { position edges { cursor node { `+c.fields()+` } } pageInfo { hasNextPage endCursor } } } }`,
		map[string]any{"id": id, "first": c.options.PageSize, "after": orNull(after), "order": c.options.Order}, &data)
	switch {
	case err != nil:
		return p, nil, fmt.Errorf("read the conversation: %w", err)
	case data.Post == nil:
		c.change(func() { c.around, c.held = nil, held[P]{} })
		return p, nil, fmt.Errorf("read the conversation: %w", ErrNotFound)
	}
	post, replies := data.Post.post, data.Post.Replies
	if post.original != "" {
		c.change(func() { c.id = post.original })
		return c.page(ctx, after)
	}
	p = page[P]{position: replies.Position}
	for _, e := range replies.Edges {
		reply := e.Node.in(c.options.Order)
		reply.Cursor = e.Cursor
		p.entries = append(p.entries, reply)
	}
	if replies.PageInfo.HasNextPage {
		p.next = replies.PageInfo.EndCursor
	}
	for _, ancestor := range append(data.Post.Ancestors, post) {
		around = append(around, ancestor.in(c.options.Order))
	}
	return p, around, nil
}

func (c *Conversation[P]) fields() string {
	return "id createdAt author { id } replyTo { id } " + c.options.Fields
}

// conversationPage decodes a post with a page of its replies.
type conversationPage[P any] struct {
	post      node[P]
	Ancestors []node[P]
	Replies   struct {
		Position string
		Edges    []struct {
			Cursor string
			Node   node[P]
		}
		PageInfo struct {
			HasNextPage bool
			EndCursor   string
		}
	}
}

// UnmarshalJSON decodes the page. The query of a further page selects nothing of the post itself.
func (p *conversationPage[P]) UnmarshalJSON(raw []byte) error {
	type plain conversationPage[P]
	if err := json.Unmarshal(raw, (*plain)(p)); err != nil {
		return err
	}
	return json.Unmarshal(raw, &p.post)
}

// node decodes a post of a conversation.
type node[P any] struct {
	entry             Entry[P]
	replyTo, original string
	created           time.Time
}

// UnmarshalJSON decodes a post with the fields of Conversation.fields.
func (n *node[P]) UnmarshalJSON(raw []byte) error {
	var as struct {
		ID                string
		CreatedAt         time.Time
		Author            struct{ ID string }
		ReplyTo, RepostOf struct{ ID string } // null leaves them empty
	}
	if err := json.Unmarshal(raw, &as); err != nil {
		return err
	}
	*n = node[P]{entry: Entry[P]{ID: as.ID, AuthorID: as.Author.ID}, replyTo: as.ReplyTo.ID, original: as.RepostOf.ID, created: as.CreatedAt}
	return json.Unmarshal(raw, &n.entry.Post)
}

// in returns the entry in a list of this order. Entries are sorted by descending score, so in Oldest the
// score falls with time.
func (n node[P]) in(order string) Entry[P] {
	e := n.entry
	e.Score = float64(n.created.UnixMilli())
	if order == Oldest {
		e.Score = -e.Score
	}
	return e
}

func (c *Conversation[P]) mustRead() bool   { return c.held.mustRead() }
func (c *Conversation[P]) position() string { return c.held.Position }
func (c *Conversation[P]) invalidate()      { c.held.stale = true }

func (c *Conversation[P]) subscription() (query string, variables map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return `subscription ConversationEvents($postId: ID!, $after: Cursor) { conversationEvents(postId: $postId, after: $after) { __typename
		... on ConversationPostAdded { position post { ` + c.fields() + ` } }
		... on ConversationPostUpdated { position post { ` + c.fields() + ` } }
		... on ConversationPostRemoved { position postId }
		... on ConversationInvalidated { position reason } } }`, map[string]any{"postId": c.id}
}

func (c *Conversation[P]) event(data json.RawMessage) (apply func(), err error) {
	var answer struct {
		ConversationEvents *struct {
			Typename string `json:"__typename"`
			Position string
			Post     node[P]
			PostID   string
			Reason   string
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	as := answer.ConversationEvents
	if as == nil {
		return nil, errors.New("the result has none")
	}
	e := ConversationEvent[P]{Kind: as.Typename, Post: as.Post.in(c.options.Order), ReplyTo: as.Post.replyTo, Reason: as.Reason, position: as.Position}
	if as.PostID != "" {
		e.Post = Entry[P]{ID: as.PostID}
	}
	return func() {
		if c.options.OnEvent != nil {
			c.options.OnEvent(e)
		}
		c.change(func() { c.apply(e) })
	}, nil
}

// apply updates the state with an event. The caller holds the lock.
func (c *Conversation[P]) apply(e ConversationEvent[P]) {
	at := c.aroundIndex(e.Post.ID)
	switch e.Kind {
	case ConversationPostAdded, ConversationPostUpdated:
		switch {
		case at >= 0:
			c.around = slices.Clone(c.around)
			c.around[at] = e.Post
		case e.ReplyTo == c.id:
			c.held.put(e.Post)
		case c.everAround[e.Post.ID]: // an ancestor that was hidden is shown again
			c.held.stale = true
		}
	case ConversationPostRemoved:
		if at >= 0 {
			// The post depends on the posts that lead to it. The read that follows says what is left.
			c.around = slices.Delete(slices.Clone(c.around), at, at+1)
			c.held.stale = true
			return
		}
		c.held.remove(e.Post.ID)
	case ConversationInvalidated:
		c.held.stale = true // the next read replaces everything
	}
	c.held.Position = e.position
}

func (c *Conversation[P]) aroundIndex(id string) int {
	return slices.IndexFunc(c.around, func(e Entry[P]) bool { return e.ID == id })
}
