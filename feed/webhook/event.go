package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tideline/ent"
	"tideline/ent/externalpost"
	"tideline/ent/user"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
	"tideline/internal/pipeline"
)

// Version is the version of the payloads. Within a version, fields may be added, but none is
// removed or changes its meaning.
const Version = 1

// The types of events.
const (
	UserCreated     = "user.created"
	UserUpdated     = "user.updated"
	UserDeleted     = "user.deleted"
	PostCreated     = "post.created"
	PostUpdated     = "post.updated" // edited, given another visibility, its quote withdrawn, or hidden or shown again by a moderator
	PostDeleted     = "post.deleted"
	FollowRequested = "follow.requested"
	FollowCreated   = "follow.created"
	FollowDeleted   = "follow.deleted" // the follow, or the request, has ended
	LikeCreated     = "like.created"
	LikeDeleted     = "like.deleted"
	ReportCreated   = "report.created"
	ReportDecided   = "report.decided"
	// Test is sent only by Deliverer.Test.
	Test = "webhook.test"
)

// Groups are the first parts of the types. An endpoint that asks for post.* receives the whole
// group.
var Groups = []string{"user", "post", "follow", "like", "report"}

// Types lists all types that an endpoint can ask for.
var Types = []string{
	UserCreated, UserUpdated, UserDeleted, PostCreated, PostUpdated, PostDeleted,
	FollowRequested, FollowCreated, FollowDeleted, LikeCreated, LikeDeleted, ReportCreated, ReportDecided,
}

// payload is the body of a delivery.
type payload struct {
	Type      string    `json:"type"`
	Version   int       `json:"version"`
	Timestamp time.Time `json:"timestamp"` // of the change
	Data      Data      `json:"data"`
}

// Data is the subject of an event. One of its fields is set.
type Data struct {
	User   *User   `json:"user,omitempty"`
	Post   *Post   `json:"post,omitempty"`
	Follow *Follow `json:"follow,omitempty"`
	Like   *Like   `json:"like,omitempty"`
	Report *Report `json:"report,omitempty"`
}

// Person names a user.
type Person struct {
	ID         string `json:"id"` // as in the API
	ExternalID string `json:"externalId,omitempty"`
	Issuer     string `json:"issuer,omitempty"` // the issuer of ExternalID
}

// User is a user, with the public profile unless the user is deleted.
type User struct {
	Person
	*Profile
}

// Profile is the public part of a user.
type Profile struct {
	Handle    string   `json:"handle"`
	Name      string   `json:"name"`
	Bio       string   `json:"bio"`
	AvatarURL string   `json:"avatarUrl,omitempty"`
	Links     []string `json:"links,omitempty"`
	// Data holds the app's own fields.
	Data              json.RawMessage `json:"data,omitempty"`
	ApprovesFollowers bool            `json:"approvesFollowers"`
	CreatedAt         time.Time       `json:"createdAt"`
}

// Post is a post at the time of the event. A deleted post has only ids.
type Post struct {
	ID         string  `json:"id"`
	ExternalID string  `json:"externalId,omitempty"`
	Issuer     string  `json:"issuer,omitempty"` // the issuer of ExternalID
	Author     *Person `json:"author,omitempty"`
	Text       *string `json:"text,omitempty"`
	// Data holds the app's own fields.
	Data       json.RawMessage `json:"data,omitempty"`
	Visibility string          `json:"visibility,omitempty"`
	// ReplyTo is the parent of a reply. Root is the first post of the conversation that a reply, or
	// the original of a repost, belongs to. These posts, the original and the quoted post may have
	// been deleted.
	ReplyTo        string `json:"replyTo,omitempty"`
	Root           string `json:"root,omitempty"`
	RepostOf       string `json:"repostOf,omitempty"`
	QuoteOf        string `json:"quoteOf,omitempty"`
	QuoteWithdrawn bool   `json:"quoteWithdrawn,omitempty"` // by the author of the quoted post
	// HiddenByModerators: only the author sees the post, whatever its visibility.
	HiddenByModerators bool       `json:"hiddenByModerators,omitempty"`
	CreatedAt          *time.Time `json:"createdAt,omitempty"`
	EditedAt           *time.Time `json:"editedAt,omitempty"`
}

// Follow is a follow, or a request to follow.
type Follow struct {
	Follower Person `json:"follower"`
	Followee Person `json:"followee"`
}

// Like is a user's like of a post.
type Like struct {
	User Person `json:"user"`
	Post Post   `json:"post"` // only ids
}

// Report is a user's report to the moderators about another user or another user's post.
type Report struct {
	ID       string `json:"id"`
	Reporter Person `json:"reporter"`
	Reported Person `json:"reported"`       // the author, if a post is reported
	Post     *Post  `json:"post,omitempty"` // ids, and the text when the post was reported
	Reason   string `json:"reason"`
	Comment  string `json:"comment,omitempty"`
	Status   string `json:"status"`
	Note     string `json:"note,omitempty"` // from the moderator who decided
}

func person(u *ent.User) Person {
	p := Person{ID: ent.NodeID("User", u.ID), ExternalID: string(u.ExternalID)}
	if u.Issuer != nil {
		p.Issuer = *u.Issuer
	}
	return p
}

// postOf returns the payload of a post, without author and external id. The post's Data must have
// been read.
func postOf(p *ent.Post) *Post {
	at := ids.TimeOf(p.ID).UTC()
	return &Post{
		ID: ent.NodeID("Post", p.ID), Text: &p.Text, Data: dataOf(p.Data), Visibility: string(p.Visibility.Shown()),
		ReplyTo: nodeOf(p.ParentID), Root: nodeOf(p.RootID), RepostOf: nodeOf(p.RepostOf), QuoteOf: nodeOf(p.QuoteOf), QuoteWithdrawn: p.QuoteWithdrawn,
		HiddenByModerators: p.HiddenByModerators(), CreatedAt: &at, EditedAt: p.Edited(),
	}
}

// nodeOf returns the API's id of a post, or "" for 0.
func nodeOf(id int64) string {
	if id == 0 {
		return ""
	}
	return ent.NodeID("Post", id)
}

// dataOf returns the app's own fields, or nil if there are none.
func dataOf(data *string) json.RawMessage {
	if data == nil || *data == ent.NoData {
		return nil
	}
	return json.RawMessage(*data)
}

func userSubject(id int64) string { return "user:" + strconv.FormatInt(id, 10) }

// PostSubjects returns the subjects of events about the posts themselves.
func PostSubjects(posts []int64) []string {
	return rows.Map(posts, postSubject)
}

func postSubject(id int64) string { return "post:" + strconv.FormatInt(id, 10) }

// User records that the user was created, updated or deleted, in the same transaction. The caller
// has already written the user's row.
//
// Cost of all methods that record: nothing without an endpoint; else one insert. User also makes a
// look-up.
func (o *Outbox) User(ctx context.Context, tx *ent.Tx, kind string, u *ent.User) error {
	if !o.Wanted() {
		return nil
	}
	data := User{Person: person(u)}
	if kind != UserDeleted {
		own := u.Data
		if own == nil && kind != UserCreated {
			found, err := rows.UserData(ctx, tx.UserData, []int64{u.ID})
			if err != nil {
				return err
			}
			own = found[0]
		}
		data.Profile = &Profile{
			Handle: u.Handle, Name: u.Name, Bio: u.Bio, AvatarURL: u.AvatarURL,
			Links: u.LinkList(), Data: dataOf(own), ApprovesFollowers: u.ApprovesFollowers, CreatedAt: u.CreatedAt.UTC(),
		}
	}
	return o.record(ctx, tx, event{kind, userSubject(u.ID), Data{User: &data}})
}

// NewPost adds a statement to w that records that the post was created. w is sent in the
// transaction that creates the post and has locked the author.
func (o *Outbox) NewPost(w *pipeline.Pipeline, author *ent.User, p *ent.Post) error {
	if !o.Wanted() {
		return nil
	}
	data, by := postOf(p), person(author)
	data.Author = &by
	return o.recordWith(w, event{PostCreated, postSubject(p.ID), Data{Post: data}})
}

// Post records that the post was updated or is being deleted. The caller has locked the author, and
// deletes the post later.
//
// Cost: look-ups of the post's external id and data.
func (o *Outbox) Post(ctx context.Context, tx *ent.Tx, kind string, author *ent.User, p *ent.Post) error {
	if !o.Wanted() {
		return nil
	}
	if p.Data == nil && kind == PostUpdated {
		found, err := rows.PostData(ctx, tx.PostData, []int64{p.ID})
		if err != nil {
			return err
		}
		p.Data = found[0]
	}
	data := postOf(p)
	if kind == PostDeleted {
		data = &Post{ID: data.ID}
	}
	data.Author = new(person(author))
	if err := data.identify(ctx, tx, p.ID); err != nil {
		return err
	}
	return o.record(ctx, tx, event{kind, postSubject(p.ID), Data{Post: data}})
}

// identify adds the post's id at another server, if there is one.
func (p *Post) identify(ctx context.Context, tx *ent.Tx, id int64) error {
	name, err := tx.ExternalPost.Query().Where(externalpost.PostID(id)).Order(ent.Asc(externalpost.FieldID)).First(ctx)
	if ent.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find external id of a post: %w", err)
	}
	p.ExternalID, p.Issuer = string(name.ExternalID), name.Issuer
	return nil
}

// Follow records that a follow was requested, created or ended. The caller has locked both users.
func (o *Outbox) Follow(ctx context.Context, tx *ent.Tx, kind string, follower, followee *ent.User) error {
	if !o.Wanted() {
		return nil
	}
	subject := fmt.Sprintf("follow:%d:%d", follower.ID, followee.ID)
	return o.record(ctx, tx, event{kind, subject, Data{Follow: &Follow{person(follower), person(followee)}}})
}

// Like records that the user's like of the post was created or deleted. The caller has locked
// the post.
//
// Cost: look-ups of the user and of the post's external id.
func (o *Outbox) Like(ctx context.Context, tx *ent.Tx, kind string, userID, postID int64) error {
	if !o.Wanted() {
		return nil
	}
	u, err := tx.User.Query().Where(user.ID(userID)).Select(user.FieldID, user.FieldIssuer, user.FieldExternalID).Only(ctx)
	if err != nil {
		return errs.Wrap(err, "find who likes a post")
	}
	data := Like{User: person(u), Post: Post{ID: ent.NodeID("Post", postID)}}
	if err := data.Post.identify(ctx, tx, postID); err != nil {
		return err
	}
	return o.record(ctx, tx, event{kind, fmt.Sprintf("like:%d:%d", userID, postID), Data{Like: &data}})
}

// Report records that a report was made or decided. The caller has locked the reported user.
//
// Cost: a look-up of the external id of a post.
func (o *Outbox) Report(ctx context.Context, tx *ent.Tx, kind string, r *ent.Report, reporter, reported *ent.User) error {
	if !o.Wanted() {
		return nil
	}
	data := Report{
		ID: r.ReportID(), Reporter: person(reporter), Reported: person(reported),
		Reason: string(r.Reason), Comment: r.Comment, Status: string(r.Status), Note: r.Note,
	}
	if id := r.PostNodeID(); id != nil {
		data.Post = &Post{ID: *id, Text: &r.Text}
		if err := data.Post.identify(ctx, tx, r.PostID); err != nil {
			return err
		}
	}
	return o.record(ctx, tx, event{kind, fmt.Sprintf("report:%d", r.ID), Data{Report: &data}})
}
