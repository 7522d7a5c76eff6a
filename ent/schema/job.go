package schema

import (
	"encoding/json"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Job is work that follows from a write. Its row is stored in the transaction of the write, and
// deleted when the work is finished, not when it is handed out.
type Job struct{ ent.Schema }

// Fields of Job.
func (Job) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("kind").Immutable(),
		field.String("pool").Immutable(),
		field.JSON("payload", json.RawMessage{}).Immutable(),
		field.JSON("state", json.RawMessage{}).Optional().Comment("where an attempt continues after an interruption"),
		field.Int("attempts").Default(0).Comment("attempts that failed or whose worker died"),
		field.String("last_error").Default(""),
		field.Int64("claim").Default(0).Comment("identifies the attempt that may change the row; 0: the first attempt"),
		field.Bool("restart").Default(false).Comment("the next attempt starts from the beginning, because an attempt that had lost its claim was still writing"),
		field.Bool("dead").Default(false).Comment("given up; an operator must decide"),
		field.Time("due_at").Comment("when the sweeper hands the job out again unless it is done"),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Indexes of Job.
func (Job) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("dead", "due_at"),
		index.Fields("dead", "pool", "created_at"),
		index.Fields("id").StorageKey("job_changes").Annotations(entsql.IndexWhere(JobChanges)),
	}
}

// JobChanges is the SQL condition for jobs after which a user may see more or less of a home
// timeline. The kinds that it excludes need no such check: a new post reaches inboxes, an author
// who is pushed again is no longer merged, and queries read the muted words themselves. An index
// uses the condition, so a change needs a migration.
const JobChanges = "kind NOT IN ('post.created', 'post.erased', 'author.returns', 'words.changed', 'canary', 'canary_subscriber')"

// Writer is a lease on one of the numbers that keep the ids of concurrently writing processes
// apart. Its holder makes only ids below the end of the lease. The next holder starts above that
// end, so it cannot repeat an id, whatever its clock says.
type Writer struct{ ent.Schema }

// Fields of Writer.
func (Writer) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.String("holder").Default("").Comment("random name of the process that holds the lease"),
		field.Int64("until").Default(0).Comment("end of the lease: milliseconds of the id clock"),
	}
}
