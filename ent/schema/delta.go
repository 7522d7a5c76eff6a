package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// UserDelta is an addition to the counters of a user that is not yet part of User's columns. Users
// who follow the same user at the same time append rows here, instead of waiting for a lock on one
// row.
type UserDelta struct{ ent.Schema }

// Fields of UserDelta.
func (UserDelta) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.Int("followers").Default(0).Immutable(),
		field.Int("following").Default(0).Immutable(),
	}
}

// Edges of UserDelta.
func (UserDelta) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of UserDelta.
func (UserDelta) Indexes() []ent.Index { return []ent.Index{index.Fields("user_id")} }

// PostDelta is UserDelta for the counters of a post.
type PostDelta struct{ ent.Schema }

// Fields of PostDelta.
func (PostDelta) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("post_id").Immutable(),
		field.Int("likes").Default(0).Immutable(),
		field.Int("replies").Default(0).Immutable(),
		field.Int("reposts").Default(0).Immutable(),
		field.Int("quotes").Default(0).Immutable(),
	}
}

// Edges of PostDelta.
func (PostDelta) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of PostDelta.
func (PostDelta) Indexes() []ent.Index { return []ent.Index{index.Fields("post_id")} }
