package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Process is a process that serves or works, or did until recently. It maintains its row itself,
// and reads from it what an operator wants its workers to do.
type Process struct{ ent.Schema }

// Fields of Process.
func (Process) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.String("host").Immutable(),
		field.Int("pid").Immutable(),
		field.String("version").Immutable(),
		field.String("roles").Immutable().Comment("server, workers, or both with a comma"),
		field.Time("started_at").Immutable(),
		field.Time("seen_at").Comment("the last heartbeat, by the clock of the process"),
		field.Int("subscriptions").Comment("under way"),
		field.Int("jobs").Comment("under way"),
		field.Bool("paused").Comment("its workers take no new job"),
		field.Enum("wanted").Values("run", "pause").Default("run").Comment("the state of its workers that an operator asked for"),
	}
}

// Indexes of Process.
func (Process) Indexes() []ent.Index {
	return []ent.Index{index.Fields("seen_at")}
}
