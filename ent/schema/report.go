package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Report is a user's report to the moderators about a post or another user. It is deleted with
// either of the two users.
type Report struct{ ent.Schema }

// Fields of Report.
func (Report) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("reporter_id").Immutable(),
		field.Int64("reported_id").Immutable().Comment("the reported user, or the author of the reported post"),
		field.Int64("post_id").Default(0).Immutable().Comment("0: the report is about the user"),
		field.Int64("parent_id").Default(0).Immutable().Comment("the post that the post replied to or reposted; 0: none"),
		field.Int64("root_id").Default(0).Immutable().Comment("the root of the post's conversation; 0: the post is no reply"),
		field.Enum("reason").Values("SPAM", "HARASSMENT", "VIOLENCE", "SEXUAL", "ILLEGAL", "IMPERSONATION", "OTHER").Immutable(),
		field.Text("comment").Default("").Immutable(),
		field.Text("text").Default("").Immutable().Comment("the post's text when it was reported"),
		field.Bool("unseen").Default(false).Immutable().
			Comment("whether the reporter could not see the post when reporting it: then the reporter must not learn that the report exists"),
		field.Enum("status").Values("OPEN", "UPHELD", "DISMISSED").Default("OPEN"),
		field.Int64("claimed_by").Default(0).Comment("the moderator who claimed it or, once it is decided, who decided; 0: nobody"),
		field.Int64("claimed_until").Default(0).Comment("Unix time in milliseconds"),
		field.Int64("decided_at").Default(0).Comment("Unix time in milliseconds; 0: it is open"),
		field.Text("note").Default("").Comment("the moderator's"),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Edges of Report.
func (Report) Edges() []ent.Edge {
	return []ent.Edge{owner("reporter", "reporter_id"), owner("reported", "reported_id")}
}

// Indexes of Report: a user's own reports, the reports about one subject, and the moderators'
// queue.
func (Report) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("reporter_id", "status"),
		index.Fields("reported_id", "post_id", "status"),
		index.Fields("status", "id"),
	}
}
