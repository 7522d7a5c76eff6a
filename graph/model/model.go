// Package model binds the schema's types to Go types: scalars and enums with their encodings, and connections
// with package paging. Payloads and inputs that exist only in the schema are generated.
package model

import (
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"tideline/ent"
	"tideline/ent/auditentry"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/apikey"
	"tideline/feed/bulk"
	"tideline/feed/conversation"
	"tideline/feed/home"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// The connections of the schema. A timeline is a PostConnection too.
type (
	PostConnection = paging.Connection[ent.Post]
	PostEdge       = paging.Edge[ent.Post]
	UserConnection = paging.Connection[ent.User]
	UserEdge       = paging.Edge[ent.User]

	SessionConnection = paging.Connection[session.Session]
	SessionEdge       = paging.Edge[session.Session]

	PostVersionConnection = paging.Connection[ent.PostVersion]
	PostVersionEdge       = paging.Edge[ent.PostVersion]

	APIKeyConnection = paging.Connection[apikey.Key]
	APIKeyEdge       = paging.Edge[apikey.Key]

	AuditEntryConnection = paging.Connection[ent.AuditEntry]
	AuditEntryEdge       = paging.Edge[ent.AuditEntry]
	SuspensionConnection = paging.Connection[moderation.Suspension]
	SuspensionEdge       = paging.Edge[moderation.Suspension]

	ReportConnection = paging.Connection[ent.Report]
	ReportEdge       = paging.Edge[ent.Report]
)

// Relationship is the relation between a viewer and a user.
type Relationship struct {
	visibility.Relation
	Viewer, User int64
}

// Following reports whether the viewer follows the user.
func (r *Relationship) Following() bool { return r.Has(visibility.Following) }

// FollowedBy reports whether the user follows the viewer.
func (r *Relationship) FollowedBy() bool { return r.Has(visibility.FollowedBy) }

// Mutual reports whether the two follow each other.
func (r *Relationship) Mutual() bool { return r.Has(visibility.Mutual) }

// Blocking reports whether the viewer blocks the user.
func (r *Relationship) Blocking() bool { return r.Has(visibility.Blocking) }

// Muting reports whether the viewer mutes the user.
func (r *Relationship) Muting() bool { return r.Has(visibility.Muting) }

// Requested reports whether the viewer asked to follow the user and waits for the answer.
func (r *Relationship) Requested() bool { return r.Has(visibility.Requested) }

// RelationshipKind returns the kind of the ids of a viewer's relationships; see
// ent.NodeID. The id contains both users.
func RelationshipKind(viewer int64) string {
	return "Relationship:" + strconv.FormatInt(viewer, 10)
}

// NodeID implements ent.Node.
func (r *Relationship) NodeID() string { return ent.NodeID(RelationshipKind(r.Viewer), r.User) }

// timeLayout is RFC 3339 with exactly three decimals.
const timeLayout = `"2006-01-02T15:04:05.000Z"`

// MarshalTime encodes the scalar Time.
func MarshalTime(t time.Time) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		_, _ = w.Write(t.UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout)) // writes into memory
	})
}

// UnmarshalTime decodes the scalar Time. Error: BadInput.
func UnmarshalTime(v any) (time.Time, error) {
	text, err := graphql.UnmarshalString(v)
	if err != nil {
		return time.Time{}, err
	}
	return bulk.ParseTime(text)
}

// MarshalObject encodes the scalar JSONObject from its JSON text.
func MarshalObject(object string) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, object) }) // writes into memory
}

// UnmarshalObject decodes the scalar JSONObject; graph/exec has validated it.
func UnmarshalObject(v any) (string, error) {
	object, err := json.Marshal(v)
	return string(object), err
}

// MarshalVisibility encodes the enum Visibility, also for a post that a moderator hid.
func MarshalVisibility(v schema.Visibility) graphql.Marshaler {
	return graphql.MarshalString(string(v.Shown()))
}

// UnmarshalVisibility decodes the enum Visibility; graph/exec has validated it.
func UnmarshalVisibility(v any) (schema.Visibility, error) {
	text, err := graphql.UnmarshalString(v)
	return schema.Visibility(text), err
}

// MarshalOrder encodes the enum TimelineOrder.
func MarshalOrder(o home.Order) graphql.Marshaler { return graphql.MarshalString(string(o)) }

// UnmarshalOrder decodes the enum TimelineOrder; graph/exec has validated it.
func UnmarshalOrder(v any) (home.Order, error) {
	text, err := graphql.UnmarshalString(v)
	return home.Order(text), err
}

// MarshalAPIKeyScope encodes the enum ApiKeyScope.
func MarshalAPIKeyScope(s apikey.Scope) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalAPIKeyScope decodes the enum ApiKeyScope; graph/exec has validated it.
func UnmarshalAPIKeyScope(v any) (apikey.Scope, error) {
	text, err := graphql.UnmarshalString(v)
	return apikey.Scope(text), err
}

// MarshalUpsertStatus encodes the enum UpsertStatus.
func MarshalUpsertStatus(s bulk.Status) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalUpsertStatus decodes the enum UpsertStatus, which no input contains.
func UnmarshalUpsertStatus(v any) (bulk.Status, error) {
	text, err := graphql.UnmarshalString(v)
	return bulk.Status(text), err
}

// MarshalRole encodes the enum Role.
func MarshalRole(r user.Role) graphql.Marshaler { return graphql.MarshalString(string(r)) }

// UnmarshalRole decodes the enum Role; graph/exec has validated it.
func UnmarshalRole(v any) (user.Role, error) {
	text, err := graphql.UnmarshalString(v)
	return user.Role(text), err
}

// MarshalAuditAction encodes the enum AuditAction.
func MarshalAuditAction(a auditentry.Action) graphql.Marshaler {
	return graphql.MarshalString(string(a))
}

// UnmarshalAuditAction decodes the enum AuditAction; graph/exec has validated it.
func UnmarshalAuditAction(v any) (auditentry.Action, error) {
	text, err := graphql.UnmarshalString(v)
	return auditentry.Action(text), err
}

// MarshalReportReason encodes the enum ReportReason.
func MarshalReportReason(r report.Reason) graphql.Marshaler { return graphql.MarshalString(string(r)) }

// UnmarshalReportReason decodes the enum ReportReason; graph/exec has validated it.
func UnmarshalReportReason(v any) (report.Reason, error) {
	text, err := graphql.UnmarshalString(v)
	return report.Reason(text), err
}

// MarshalReportStatus encodes the enum ReportStatus.
func MarshalReportStatus(s report.Status) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalReportStatus decodes the enum ReportStatus; graph/exec has validated it.
func UnmarshalReportStatus(v any) (report.Status, error) {
	text, err := graphql.UnmarshalString(v)
	return report.Status(text), err
}

// MarshalAudience encodes the enum Audience.
func MarshalAudience(a schema.Audience) graphql.Marshaler { return graphql.MarshalString(string(a)) }

// UnmarshalAudience decodes the enum Audience; graph/exec has validated it.
func UnmarshalAudience(v any) (schema.Audience, error) {
	text, err := graphql.UnmarshalString(v)
	return schema.Audience(text), err
}

// MarshalHomeReplies encodes the enum HomeReplies.
func MarshalHomeReplies(h schema.HomeReplies) graphql.Marshaler {
	return graphql.MarshalString(string(h))
}

// UnmarshalHomeReplies decodes the enum HomeReplies; graph/exec has validated it.
func UnmarshalHomeReplies(v any) (schema.HomeReplies, error) {
	text, err := graphql.UnmarshalString(v)
	return schema.HomeReplies(text), err
}

// MarshalReplyOrder encodes the enum ReplyOrder.
func MarshalReplyOrder(o conversation.Order) graphql.Marshaler {
	return graphql.MarshalString(string(o))
}

// UnmarshalReplyOrder decodes the enum ReplyOrder; graph/exec has validated it.
func UnmarshalReplyOrder(v any) (conversation.Order, error) {
	text, err := graphql.UnmarshalString(v)
	return conversation.Order(text), err
}
