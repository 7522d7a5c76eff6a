package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// PostData holds the app's own fields of a post. Most posts have none. They are not a column of the
// post, so that statements that read posts, or count their likes, do not pay for them.
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

// UserData is PostData for a user.
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
