package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// MutedConversation keeps the replies of a conversation out of the user's timeline.
type MutedConversation struct{ ent.Schema }

// Fields of MutedConversation.
func (MutedConversation) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.Int64("root_id").Immutable().
			Comment("the first post of the conversation, as Post.root_id; no foreign key, because the id stays when the post is deleted, and there may never have been such a post"),
		field.Bool("unseen").Default(false).Immutable().Comment("whether the user could not see the post: then the row is all that is known, and it says nothing about a post"),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Edges of MutedConversation.
func (MutedConversation) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of MutedConversation.
func (MutedConversation) Indexes() []ent.Index {
	return []ent.Index{index.Fields("user_id", "root_id").Unique()}
}
