package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// PostData has the own fields of the app in a post, which most posts have none of. They are no
// column of the post: what reads posts, and what counts their likes, does not pay for them.
type PostData struct{ ent.Schema }

// Fields of PostData.
func (PostData) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("post_id").Immutable(),
		field.Text("data").Comment("a JSON object in canonical form, never the empty one"),
	}
}

// Edges of PostData.
func (PostData) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of PostData.
func (PostData) Indexes() []ent.Index { return []ent.Index{index.Fields("post_id").Unique()} }

// UserData is PostData of a user.
type UserData struct{ ent.Schema }

// Fields of UserData.
func (UserData) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.Text("data").Comment("as PostData.data"),
	}
}

// Edges of UserData.
func (UserData) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of UserData.
func (UserData) Indexes() []ent.Index { return []ent.Index{index.Fields("user_id").Unique()} }
