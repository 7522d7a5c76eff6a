// Package model binds the schema's types to Go: a scalar or an enum by its
// encoding, a connection to that of package paging. Payloads and inputs that exist
// only in the schema are generated.
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
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/bulk"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/visibility"
)

// The connections of the schema; a timeline's is a PostConnection, too.
type (
	PostConnection = paging.Connection[ent.Post]
	PostEdge       = paging.Edge[ent.Post]
	UserConnection = paging.Connection[ent.User]
	UserEdge       = paging.Edge[ent.User]

	SessionConnection = paging.Connection[account.Session]
	SessionEdge       = paging.Edge[account.Session]

	PostVersionConnection = paging.Connection[ent.PostVersion]
	PostVersionEdge       = paging.Edge[ent.PostVersion]

	APIKeyConnection = paging.Connection[apikey.Key]
	APIKeyEdge       = paging.Edge[apikey.Key]

	AuditEntryConnection = paging.Connection[ent.AuditEntry]
	AuditEntryEdge       = paging.Edge[ent.AuditEntry]

	ReportConnection = paging.Connection[ent.Report]
	ReportEdge       = paging.Edge[ent.Report]
)

// Relationship is how a viewer and a user stand to each other.
type Relationship struct {
	visibility.Relation
	Viewer, User int64
}

// RelationshipKind is the kind of the ids of a viewer's relationships, see ent.NodeID: the
// id names both users.
func RelationshipKind(viewer int64) string {
	return "Relationship:" + strconv.FormatInt(viewer, 10)
}

// NodeID implements ent.Node.
func (r *Relationship) NodeID() string { return ent.NodeID(RelationshipKind(r.Viewer), r.User) }

// timeLayout is RFC 3339 with exactly three decimals.
const timeLayout = `"2006-01-02T15:04:05.000Z"`

// MarshalTime writes a time as the scalar Time.
func MarshalTime(t time.Time) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		_, _ = w.Write(t.UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout)) // into memory
	})
}

// UnmarshalTime reads the scalar Time. Error: BadInput.
func UnmarshalTime(v any) (time.Time, error) {
	text, err := graphql.UnmarshalString(v)
	if err != nil {
		return time.Time{}, err
	}
	return bulk.ParseTime(text)
}

// MarshalObject writes the scalar JSONObject, which is the text of one.
func MarshalObject(object string) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) { _, _ = io.WriteString(w, object) }) // into memory
}

// UnmarshalObject reads it; graph/exec has checked that it is one.
func UnmarshalObject(v any) (string, error) {
	object, err := json.Marshal(v)
	return string(object), err
}

// MarshalVisibility writes the enum Visibility, also of a post that a moderator hid.
func MarshalVisibility(v schema.Visibility) graphql.Marshaler {
	return graphql.MarshalString(string(v.Shown()))
}

// UnmarshalVisibility reads it; graph/exec has checked that it is one.
func UnmarshalVisibility(v any) (schema.Visibility, error) {
	text, err := graphql.UnmarshalString(v)
	return schema.Visibility(text), err
}

// MarshalOrder writes the enum TimelineOrder.
func MarshalOrder(o home.Order) graphql.Marshaler { return graphql.MarshalString(string(o)) }

// UnmarshalOrder reads it; graph/exec has checked that it is one.
func UnmarshalOrder(v any) (home.Order, error) {
	text, err := graphql.UnmarshalString(v)
	return home.Order(text), err
}

// MarshalAPIKeyScope writes the enum ApiKeyScope.
func MarshalAPIKeyScope(s apikey.Scope) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalAPIKeyScope reads it; graph/exec has checked that it is one.
func UnmarshalAPIKeyScope(v any) (apikey.Scope, error) {
	text, err := graphql.UnmarshalString(v)
	return apikey.Scope(text), err
}

// MarshalUpsertStatus writes the enum UpsertStatus.
func MarshalUpsertStatus(s bulk.Status) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalUpsertStatus reads it; no input has one.
func UnmarshalUpsertStatus(v any) (bulk.Status, error) {
	text, err := graphql.UnmarshalString(v)
	return bulk.Status(text), err
}

// MarshalRole writes the enum Role.
func MarshalRole(r user.Role) graphql.Marshaler { return graphql.MarshalString(string(r)) }

// UnmarshalRole reads it; graph/exec has checked that it is one.
func UnmarshalRole(v any) (user.Role, error) {
	text, err := graphql.UnmarshalString(v)
	return user.Role(text), err
}

// MarshalAuditAction writes the enum AuditAction.
func MarshalAuditAction(a auditentry.Action) graphql.Marshaler {
	return graphql.MarshalString(string(a))
}

// UnmarshalAuditAction reads it; graph/exec has checked that it is one.
func UnmarshalAuditAction(v any) (auditentry.Action, error) {
	text, err := graphql.UnmarshalString(v)
	return auditentry.Action(text), err
}

// MarshalReportReason writes the enum ReportReason.
func MarshalReportReason(r report.Reason) graphql.Marshaler { return graphql.MarshalString(string(r)) }

// UnmarshalReportReason reads it; graph/exec has checked that it is one.
func UnmarshalReportReason(v any) (report.Reason, error) {
	text, err := graphql.UnmarshalString(v)
	return report.Reason(text), err
}

// MarshalReportStatus writes the enum ReportStatus.
func MarshalReportStatus(s report.Status) graphql.Marshaler { return graphql.MarshalString(string(s)) }

// UnmarshalReportStatus reads it; graph/exec has checked that it is one.
func UnmarshalReportStatus(v any) (report.Status, error) {
	text, err := graphql.UnmarshalString(v)
	return report.Status(text), err
}
