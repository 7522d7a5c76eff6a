package ent

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// Node is a row that the API knows by a global id.
type Node interface {
	// NodeID is the row's id, unique among all types and opaque to clients.
	NodeID() string
}

// A global id is the type and the row's id in base64. The type may have colons.
var nodeEncoding = base64.RawURLEncoding.Strict()

// NodeID is the global id of the row of a type; ParseNodeID takes it apart.
func NodeID(kind string, id int64) string {
	return nodeEncoding.EncodeToString(strconv.AppendInt([]byte(kind+":"), id, 10))
}

// ParseNodeID splits a global id, ok=false for what NodeID did not make: only
// the canonical spelling passes.
func ParseNodeID(text string) (kind string, id int64, ok bool) {
	raw, err := nodeEncoding.DecodeString(text)
	colon := strings.LastIndexByte(string(raw), ':')
	if err != nil || colon < 0 {
		return "", 0, false
	}
	kind = string(raw[:colon])
	id, err = strconv.ParseInt(string(raw[colon+1:]), 10, 64)
	return kind, id, err == nil && id > 0 && NodeID(kind, id) == text
}

// APIKeyPrefix begins the id and the text of every API key.
const APIKeyPrefix = "tk_"

// APIKeyID is the id of an API key in the API, where it is no Node.
func APIKeyID(id int64) string { return APIKeyPrefix + strconv.FormatInt(id, 10) }

// NoData is what a post or a user has as Data that has no own fields of the app.
const NoData = "{}"

// NodeID implements Node.
func (u *User) NodeID() string { return NodeID("User", u.ID) }

// NodeID implements Node.
func (p *Post) NodeID() string { return NodeID("Post", p.ID) }

// AuthorNodeID is the global id of the author.
func (p *Post) AuthorNodeID() string { return NodeID("User", p.AuthorID) }

// ParentNodeID is the global id of the post that this post replies to; nil where there is none.
func (p *Post) ParentNodeID() *string { return nodeOrNil("Post", p.ParentID) }

// Edited is when the post's text or data were changed last; nil: never.
func (p *Post) Edited() *time.Time { return timeOf(p.EditedAt, p.EditedAt != 0) }

// PublicID is the id of the version in the API, where it is no Node.
func (v *PostVersion) PublicID() string { return NodeID("PostVersion", v.ID) }

// Written is since when the post was so.
func (v *PostVersion) Written() time.Time { return time.UnixMilli(v.WrittenAt) }

// HiddenByModerators reports whether a moderator hid the post. Then nobody but its author
// sees it.
func (p *Post) HiddenByModerators() bool { return p.Visibility.IsHidden() }

// PublicID is the id of the entry in the API, where it is no Node.
func (e *AuditEntry) PublicID() string { return strconv.FormatInt(e.ID, 10) }

// ActorNodeID is the global id of who did it; nil for the command line.
func (e *AuditEntry) ActorNodeID() *string { return nodeOrNil("User", e.ActorID) }

// KeyPublicID is the id of the API key by which a server did it for the actor; nil where
// none was used.
func (e *AuditEntry) KeyPublicID() *string {
	if e.KeyID == 0 {
		return nil
	}
	return new(APIKeyID(e.KeyID))
}

// ReportID is the id of the report in the API, where it is no Node.
func (r *Report) ReportID() string { return NodeID("Report", r.ID) }

// ReporterNodeID is the global id of who reported.
func (r *Report) ReporterNodeID() string { return NodeID("User", r.ReporterID) }

// ReportedNodeID is the global id of whom it is about, or whose post.
func (r *Report) ReportedNodeID() string { return NodeID("User", r.ReportedID) }

// Claimant is the moderator who claimed it last; 0 where nobody has, or it is decided.
func (r *Report) Claimant() int64 {
	if r.DecidedAt != 0 {
		return 0
	}
	return r.ClaimedBy
}

// Decider is the moderator who decided it; 0 while it is open, and for the command line.
func (r *Report) Decider() int64 {
	if r.DecidedAt == 0 {
		return 0
	}
	return r.ClaimedBy
}

// ClaimantNodeID is the global id of the Claimant; nil where there is none.
func (r *Report) ClaimantNodeID() *string { return nodeOrNil("User", r.Claimant()) }

// DeciderNodeID is the global id of the Decider; nil where there is none.
func (r *Report) DeciderNodeID() *string { return nodeOrNil("User", r.Decider()) }

// nodeOrNil is the global id of the row of a type; nil for the id 0, which no row has.
func nodeOrNil(kind string, id int64) *string {
	if id == 0 {
		return nil
	}
	return new(NodeID(kind, id))
}

// ClaimEnds is when the claim ends; nil where nobody has claimed it, or it is decided.
func (r *Report) ClaimEnds() *time.Time { return timeOf(r.ClaimedUntil, r.Claimant() != 0) }

// Decided is when it was decided; nil while it is open.
func (r *Report) Decided() *time.Time { return timeOf(r.DecidedAt, r.DecidedAt != 0) }

func timeOf(milliseconds int64, known bool) *time.Time {
	if !known {
		return nil
	}
	return new(time.UnixMilli(milliseconds))
}

// ReportedText is the text that the post had when it was reported; nil where it is about
// the user.
func (r *Report) ReportedText() *string {
	if r.PostID == 0 {
		return nil
	}
	return &r.Text
}

// PostNodeID is the global id of the post; nil where it is about the user.
func (r *Report) PostNodeID() *string { return nodeOrNil("Post", r.PostID) }

// SubjectNodeID is the global id of whom, or what, it was done to.
func (e *AuditEntry) SubjectNodeID() string { return NodeID(string(e.SubjectKind), e.SubjectID) }

// LinkList are the addresses in the user's profile.
func (u *User) LinkList() []string {
	if u.Links == "" {
		return []string{}
	}
	return strings.Split(u.Links, "\n")
}
