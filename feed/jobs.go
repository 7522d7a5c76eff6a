package feed

import (
	"context"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/queue"
)

// The kinds of jobs that follow from writes. Every job is level-triggered: it
// names what changed, and its handler reads the truth anew.
const (
	// PostCreated: a post is to reach the inboxes of those who may see it.
	PostCreated = "post.created"
	// PostChanged: a post's visibility changed, or the post is gone.
	PostChanged = "post.changed"
	// RelationChanged: two users' relation changed, in either direction.
	RelationChanged = "relation.changed"
	// AuthorReturns: an author's posts are pushed again; inboxes are to get what
	// was not pushed.
	AuthorReturns = "author.returns"
)

// PostJob is the payload of PostCreated and PostChanged. The author is named
// because the post may be gone when the job runs.
type PostJob struct {
	Post   int64 `json:"post"`
	Author int64 `json:"author"`
	// From and To are what the visibility was changed from and to, if it was; of a
	// post that is deleted there is From alone.
	From schema.Visibility `json:"from,omitempty"`
	To   schema.Visibility `json:"to,omitempty"`
}

// Widens reports whether the job may give the post to followers who did not have
// it before.
func (j PostJob) Widens() bool { return j.From != schema.Public && j.From != schema.Followers }

// WithVisibility is the post, as far as it decides who can see it, with this visibility.
func (j PostJob) WithVisibility(v schema.Visibility) *ent.Post {
	return &ent.Post{ID: j.Post, AuthorID: j.Author, Visibility: v}
}

// HiddenThenShown reports whether the change hid the post, which is there, from
// followers, and another one shows it again: who read in between does not hold
// it, whoever held it before.
func (j PostJob) HiddenThenShown(post *ent.Post) bool {
	return post != nil && post.Visibility != j.To && (j.To == schema.Private || j.To == schema.Mutuals)
}

// RelationJob is the payload of RelationChanged.
type RelationJob struct {
	Users [2]int64 `json:"users"`
	// First says that only the timeline of the first depends on what changed: the
	// other is not to notice.
	First bool `json:"first,omitempty"`
}

// AuthorJob is the payload of AuthorFalling.
type AuthorJob struct {
	Author int64 `json:"author"`
	Since  int64 `json:"since"` // when the way back began, in Unix milliseconds
}

// enqueuePost puts the job where the size of the audience belongs.
func (f *Feed) enqueuePost(ctx context.Context, tx *ent.Tx, kind string, author *ent.User, job PostJob) error {
	pool := queue.Small
	if author.FollowerCount >= f.cfg.LargeAudience {
		pool = queue.Large
	}
	return f.queue.Enqueue(ctx, tx, pool, kind, job)
}

func (f *Feed) enqueueRelation(ctx context.Context, tx *ent.Tx, job RelationJob) error {
	return f.queue.Enqueue(ctx, tx, queue.Small, RelationChanged, job)
}
