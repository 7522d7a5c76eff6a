// Package job defines the kinds of jobs, the work that follows from a write, and their payloads.
//
// Every job is level-triggered: it names what changed, and its handler reads the current state.
package job

import (
	"cmp"
	"encoding/json"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/visibility"
)

// The kinds of jobs.
const (
	// PostCreated: a post must reach the inboxes of the followers who may see it.
	PostCreated = "post.created"
	// PostChanged: a post's visibility or content changed, or the post is gone.
	PostChanged = "post.changed"
	// RelationChanged: the relation of two users changed, in either direction.
	RelationChanged = "relation.changed"
	// WordsChanged: the words or conversations that a user mutes, or the user's HomeReplies, changed.
	WordsChanged = "words.changed"
	// AuthorReturns: an author's posts are pushed again; inboxes must get the posts that were not
	// pushed.
	AuthorReturns = "author.returns"
	// PostGivenUp follows a dead PostCreated or PostChanged, RelationGivenUp a dead
	// RelationChanged. Feeds that the dead job may not have reached must be read from SQL. Their
	// payloads are the payload of the dead job.
	PostGivenUp     = "post.given_up"
	RelationGivenUp = "relation.given_up"
	// InboxesStale: so many relations changed at once that the inboxes of their users must be read
	// from SQL.
	InboxesStale = "inboxes.stale"
	// AuthorStale: an author was hidden, or is shown again; the inboxes that the author's posts
	// belong to must be read from SQL.
	AuthorStale = "author.stale"
	// FeedsStale: a job was discarded, so it is not known which feeds are incomplete; all feeds
	// must be read from SQL. Its payload has no content.
	FeedsStale = "feeds.stale"
	// UserDeleted: everything that is stored about a user must be deleted.
	UserDeleted = "user.deleted"
	// BaseChanged: a post was shown, hidden, deleted or changed, or all posts of an author were; clients
	// must be told of the replies, reposts and quotes that depend on it.
	BaseChanged = "base.changed"
	// PostErased: a post was deleted, and its many likes must be deleted.
	PostErased = "post.erased"
	// PostsBackdated: authors gained old posts; the feeds that they belong to must be read from
	// SQL, and nobody is notified.
	PostsBackdated = "posts.backdated"
	// Canary changes nothing. It measures how long a post takes to reach a subscriber.
	Canary = "canary_subscriber"
)

// Replacement returns the kind of the job that makes up for a dead job of the given kind when an
// operator discards it, or "" if nothing is left to do. ok is false for a kind that only a retry
// can do, and for a kind that this version does not know. Replacement is a queue.Replacement.
func Replacement(kind string) (then string, ok bool) {
	switch kind {
	case PostCreated, PostChanged, RelationChanged: // PostGivenUp or RelationGivenUp was enqueued when the job was given up
		return "", true
	case Canary:
		return "", true
	case PostGivenUp, RelationGivenUp, InboxesStale, AuthorStale, PostsBackdated, WordsChanged, BaseChanged, FeedsStale:
		return FeedsStale, true
	}
	return "", false // among others AuthorReturns, UserDeleted, PostErased
}

// Owner returns the user that a job belongs to, according to its payload: the author of a post, or
// the user who changed a relation. It returns 0 for other jobs. It is a queue.Config.Owner.
func Owner(kind string, payload json.RawMessage) int64 {
	switch kind {
	case PostCreated, PostChanged, PostErased:
		var j Post
		if err := json.Unmarshal(payload, &j); err == nil {
			return j.Author
		}
	case RelationChanged:
		var j Relation
		if err := json.Unmarshal(payload, &j); err == nil {
			return j.Users[0]
		}
	}
	return 0
}

// Post is the payload of PostCreated, PostChanged and PostErased, and, without a post, of
// AuthorStale. It names the author because the post may be gone when the job runs.
type Post struct {
	Post   int64 `json:"post"`
	Author int64 `json:"author"`
	// From and To are the visibility before and after its change, if it changed. A deleted post has
	// only From.
	From schema.Visibility `json:"from,omitempty"`
	To   schema.Visibility `json:"to,omitempty"`
	// Edited: the content of the post changed. From and To are then the same.
	Edited bool `json:"edited,omitempty"`
	// Base, together with Edited: not the content changed, but the root of a reply, the original of a
	// repost or a quote card.
	Base bool `json:"base,omitempty"`
	// Card, in BaseChanged: only the quote card of Post changed.
	Card bool `json:"card,omitempty"`
	// Root and ParentAuthor are the fields of visibility.Changed. They are set for a change that is told
	// to the watchers of the conversation. Otherwise Root is 0.
	Root         int64 `json:"root,omitempty"`
	ParentAuthor int64 `json:"parentAuthor,omitempty"`
}

// ToldToConversation returns the job with the fields for the watchers of the conversation of the post.
// A repost is in no conversation.
func (j Post) ToldToConversation(p *ent.Post) Post {
	if p.RepostOf == 0 {
		j.Root, j.ParentAuthor = cmp.Or(p.RootID, p.ID), p.ParentAuthorID
	}
	return j
}

// InConversation returns the change of the post as the watchers of the conversation are told of it.
// told is false if they must read the conversation again instead: the root was shown, hidden or
// deleted, and with it all replies.
func (j Post) InConversation() (c visibility.Changed, told bool) {
	return visibility.Changed{Post: j.Post, Author: j.Author, Root: j.Root, ParentAuthor: j.ParentAuthor, From: j.From}, j.Post != j.Root || j.Edited
}

// Widens reports whether the job may give the post to followers who did not have it.
func (j Post) Widens() bool { return visibility.Widens(j.From) }

// WithVisibility returns a post with this visibility and with the other fields that decide who may
// see it.
func (j Post) WithVisibility(v schema.Visibility) *ent.Post {
	return &ent.Post{ID: j.Post, AuthorID: j.Author, Visibility: v}
}

// HiddenThenShown reports whether the change hid the post from followers, and a later change shows
// it again; the post still exists. A client that read in between does not have the post, although
// it may have had it before.
func (j Post) HiddenThenShown(post *ent.Post) bool {
	return post != nil && !j.Edited && post.Visibility != j.To && visibility.Narrows(j.To)
}

// Relation is the payload of RelationChanged.
type Relation struct {
	Users [2]int64 `json:"users"`
	// First means that only the first user's timeline depends on the change. The other user must
	// not notice it.
	First bool `json:"first,omitempty"`
	// Change is the number of the change, see home.Sync.InboxAndNotify; 0 if there is none.
	Change int64 `json:"change,omitempty"`
}

// Author is the payload of AuthorReturns.
type Author struct {
	Author int64 `json:"author"`
	Since  int64 `json:"since"` // when the return to push began, in Unix milliseconds
}

// User is the payload of UserDeleted.
type User struct {
	User int64 `json:"user"`
}

// Words is the payload of WordsChanged.
type Words struct {
	User   int64 `json:"user"`
	Change int64 `json:"change"` // its number, see home.Sync.WordsChanged
}

// Users is the payload of InboxesStale.
type Users struct {
	Users []int64 `json:"users"`
}

// Authors is the payload of PostsBackdated: the authors, the newest of each author's posts, and the
// roots of the replies among the posts.
type Authors struct {
	Authors []int64 `json:"authors"`
	Newest  []int64 `json:"newest"`
	Roots   []int64 `json:"roots,omitempty"`
}
