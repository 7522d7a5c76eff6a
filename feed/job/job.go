// Package job names the work that follows from a write: the kinds of jobs with
// their payloads.
//
// Every job is level-triggered: it names what changed, and its handler reads the
// truth anew.
package job

import (
	"encoding/json"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/visibility"
)

// The kinds of jobs.
const (
	// PostCreated: a post is to reach the inboxes of those followers who may see
	// it.
	PostCreated = "post.created"
	// PostChanged: a post's visibility changed, or what it says, or the post is gone.
	PostChanged = "post.changed"
	// RelationChanged: two users' relation changed, in either direction.
	RelationChanged = "relation.changed"
	// WordsChanged: the words that a user mutes changed.
	WordsChanged = "words.changed"
	// AuthorReturns: an author's posts are pushed again; inboxes are to get the
	// posts that were not pushed.
	AuthorReturns = "author.returns"
	// PostGivenUp follows a dead PostCreated or PostChanged, RelationGivenUp a dead
	// RelationChanged: what the dead job may not have reached is to be read from SQL.
	// Their payloads are those of the dead job.
	PostGivenUp     = "post.given_up"
	RelationGivenUp = "relation.given_up"
	// InboxesStale: so many relations changed at once that the inboxes of their users are
	// to be read from SQL.
	InboxesStale = "inboxes.stale"
	// AuthorStale: an author was hidden, or is shown again; the inboxes that the posts are
	// for are to be read from SQL.
	AuthorStale = "author.stale"
	// FeedsStale: it is not known which feeds lack something, for a job was discarded; all
	// feeds are to be read from SQL. Its payload says nothing.
	FeedsStale = "feeds.stale"
	// UserDeleted: everything that is kept of a user is to be deleted.
	UserDeleted = "user.deleted"
	// PostErased: a post was deleted, and its likes, which are many, are to be.
	PostErased = "post.erased"
	// PostsBackdated: authors gained posts of long ago; the feeds where they belong are to
	// be read from SQL, and nobody is told.
	PostsBackdated = "posts.backdated"
	// Canary and SubscriberCanary change nothing: they measure how long a post is on its
	// way, to a worker and to a subscriber.
	Canary           = "canary"
	SubscriberCanary = "canary_subscriber"
)

// Replacement returns the kind of the job that makes up for a dead job of this kind when
// an operator discards it, "" if nothing is left to be done. It is not ok for a kind that
// only a retry can do, and for one that this version does not know. It is a
// queue.Replacement.
func Replacement(kind string) (then string, ok bool) {
	switch kind {
	case PostCreated, PostChanged, RelationChanged: // PostGivenUp or RelationGivenUp was enqueued when it was given up
		return "", true
	case Canary, SubscriberCanary:
		return "", true
	case PostGivenUp, RelationGivenUp, InboxesStale, AuthorStale, PostsBackdated, WordsChanged, FeedsStale:
		return FeedsStale, true
	}
	return "", false // among others AuthorReturns, UserDeleted, PostErased
}

// Owner returns whose a job is by its payload: the author of a post, or the user who changed a
// relation; 0 for one that is nobody's. It is a queue.Config.Owner.
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

// Post is the payload of PostCreated, PostChanged and PostErased, and without a post of AuthorStale. The author is named because
// the post may be gone when the job runs.
type Post struct {
	Post   int64 `json:"post"`
	Author int64 `json:"author"`
	// From and To are the visibility before and after its change, if it changed; a
	// deleted post has From alone.
	From schema.Visibility `json:"from,omitempty"`
	To   schema.Visibility `json:"to,omitempty"`
	// Edited: the post says something else than before; From and To are the same.
	Edited bool `json:"edited,omitempty"`
}

// Widens reports whether the job may give the post to followers who did not have it
// before.
func (j Post) Widens() bool { return visibility.Widens(j.From) }

// WithVisibility returns the post with this visibility, as far as it decides who
// can see it.
func (j Post) WithVisibility(v schema.Visibility) *ent.Post {
	return &ent.Post{ID: j.Post, AuthorID: j.Author, Visibility: v}
}

// HiddenThenShown reports whether the change hid the post, which still exists, from
// followers, and a later change shows it again. A client that read in between does
// not have it, though it may have had it before.
func (j Post) HiddenThenShown(post *ent.Post) bool {
	return post != nil && !j.Edited && post.Visibility != j.To && visibility.Narrows(j.To)
}

// Relation is the payload of RelationChanged.
type Relation struct {
	Users [2]int64 `json:"users"`
	// First says that only the timeline of the first depends on the change: the
	// other user must not notice it.
	First bool `json:"first,omitempty"`
	// Change is the number of the change, see home.SyncInboxAndNotify; 0: none.
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
	Change int64 `json:"change"` // its number, see home.WordsChanged
}

// Users is the payload of InboxesStale.
type Users struct {
	Users []int64 `json:"users"`
}

// Authors is the payload of PostsBackdated: the authors, and for each the newest of the
// posts.
type Authors struct {
	Authors []int64 `json:"authors"`
	Newest  []int64 `json:"newest"`
}
