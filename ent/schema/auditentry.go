package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// AuditEntry is an action of a moderator, an admin or the command line. Rows are only inserted and
// read: triggers of the database refuse every other change.
type AuditEntry struct{ ent.Schema }

// Fields of AuditEntry.
func (AuditEntry) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("actor_id").Immutable().Comment("the user who did it; 0: the command line"),
		field.Int64("key_id").Default(0).Immutable().Comment("the API key with which a server acted for the user; 0: none"),
		field.Enum("action").Values("SET_ROLE", "SUSPEND_USER", "UNSUSPEND_USER", "HIDE_POST", "UNHIDE_POST", "DECIDE_REPORT", "PAUSE_WORKERS", "RESUME_WORKERS", "RETRY_JOBS", "DISCARD_JOBS", "REBUILD_TIMELINE").Immutable(),
		field.Enum("subject_kind").Values("User", "Post", "Report", "Process", "Job").Immutable().Comment("the type in the API; Process and Job have none there"),
		field.Int64("subject_id").Immutable(),
		field.String("note").Default("").Immutable().Comment("what the actor wrote about it"),
		field.JSON("details", AuditDetails{}).Optional().Immutable(),
		field.Time("created_at").Immutable().Default(now),
	}
}

// AuditDetails say what an action changed. The comments name the actions that set a field.
type AuditDetails struct {
	// SET_ROLE: the role of the user before and after.
	RoleBefore string `json:"roleBefore,omitempty"`
	RoleAfter  string `json:"roleAfter,omitempty"`
	// DECIDE_REPORT: the status that the reports have since.
	Decision string `json:"decision,omitempty"`
	// SUSPEND_USER: what the user is told, and when the suspension ends by itself.
	Reason string     `json:"reason,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	// SUSPEND_USER: the suspension was imported, and nobody decided it here.
	Imported bool `json:"imported,omitempty"`
	// RETRY_JOBS, DISCARD_JOBS: the number of jobs, and the first of their ids.
	JobCount int     `json:"jobCount,omitempty"`
	Jobs     []int64 `json:"jobs,omitempty"`
}

// Annotations of AuditEntry.
func (AuditEntry) Annotations() []schema.Annotation {
	return []schema.Annotation{schema.Comment("no foreign keys, because an entry outlives what it describes")}
}
