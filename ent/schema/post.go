package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Post is a post. Its id is also its time and its score in every chronological feed, so "newest
// first" is always "by id, descending".
type Post struct{ ent.Schema }

// Fields of Post.
func (Post) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.Int64("author_id").Immutable(),
		field.Text("text"),
		field.Int64("edited_at").Default(0).Comment("when text or data were changed last, in Unix milliseconds; 0: never"),
		field.Enum("visibility").GoType(Public),
		field.Int("like_count").Default(0),
	}
}

// Edges of Post.
func (Post) Edges() []ent.Edge { return []ent.Edge{owner("author", "author_id")} }

// Indexes of Post.
func (Post) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("author_id", "id"),
		index.Fields("author_id", "visibility", "id"),                                          // skips hidden posts, however many there are
		index.Fields("author_id", "edited_at").Annotations(entsql.IndexWhere("edited_at > 0")), // few posts are edited
	}
}

// PostVersion is a post as it was before it was edited.
type PostVersion struct{ ent.Schema }

// Fields of PostVersion.
func (PostVersion) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("post_id").Immutable(),
		field.Text("text").Immutable(),
		field.Text("data").Immutable().Comment("as PostData.data, or the empty object"),
		field.Int64("written_at").Immutable().Comment("when this version was written, in Unix milliseconds"),
	}
}

// Edges of PostVersion.
func (PostVersion) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of PostVersion.
func (PostVersion) Indexes() []ent.Index { return []ent.Index{index.Fields("post_id", "id")} }

// PostTag is a tag in the text of a post. Posts are found by it.
type PostTag struct{ ent.Schema }

// Fields of PostTag.
func (PostTag) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("tag").MaxLen(256).Immutable().Comment("in the form in which package tag compares it"),
		field.Int64("post_id").Immutable(),
	}
}

// Edges of PostTag.
func (PostTag) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of PostTag.
func (PostTag) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("tag", "post_id").Unique(), // the posts of a tag, newest first
		index.Fields("post_id"),
	}
}

// ExternalPost is the id of a post at another server.
type ExternalPost struct{ ent.Schema }

// Fields of ExternalPost.
func (ExternalPost) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("post_id").Immutable(),
		field.String("issuer").MaxLen(255).Immutable().Comment("whose id it is, as User.issuer"),
		field.Bytes("external_id").MaxLen(255).Immutable().Comment("bytes, as User.external_id"),
	}
}

// Edges of ExternalPost.
func (ExternalPost) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of ExternalPost.
func (ExternalPost) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("issuer", "external_id").Unique(),
		index.Fields("post_id"),
	}
}

// Delivery is the receipt of a post's fan-out.
type Delivery struct{ ent.Schema }

// Fields of Delivery. Lags are milliseconds since the post.
func (Delivery) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.Int("pushed").Default(0).Comment("followers whose inbox received the post"),
		field.Int("pulled").Default(0).Comment("followers whose reads merge the author's outbox"),
		field.Int("skipped").Default(0).Comment("followers who were away, or may not see the post"),
		field.Int64("first_lag").Default(0),
		field.Int64("median_lag").Default(0),
		field.Int64("last_lag").Default(0),
		field.Bool("done").Default(false),
	}
}

// Like is one user's like of one post.
type Like struct{ ent.Schema }

// Fields of Like.
func (Like) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.Int64("post_id").Immutable(),
	}
}

// Edges of Like.
func (Like) Edges() []ent.Edge {
	return []ent.Edge{owner("user", "user_id"), owner("post", "post_id")}
}

// Indexes of Like.
func (Like) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("post_id", "user_id").Unique(),
		index.Fields("user_id", "id", "post_id"), // a user's likes, newest first
	}
}

// IdempotencyKey ties a key that a client chose to the post that its first use created.
type IdempotencyKey struct{ ent.Schema }

// Fields of IdempotencyKey.
func (IdempotencyKey) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.String("key").Immutable().MaxLen(200),
		field.Int64("post_id").Immutable(),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Indexes of IdempotencyKey.
func (IdempotencyKey) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("user_id", "key").Unique(),
		index.Fields("created_at"),
	}
}

// owner is a required edge to the row that this row belongs to. The row is deleted with its owner.
func owner(name, column string) ent.Edge {
	target := map[string]any{"post": Post.Type}[name]
	if target == nil {
		target = User.Type
	}
	return edge.To(name, target).Field(column).Unique().Required().Immutable().
		Annotations(entsql.OnDelete(entsql.Cascade))
}
