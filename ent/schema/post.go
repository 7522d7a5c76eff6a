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
//
// A reply has a parent and a root. A repost has an original and no text; if the original is a
// reply, the repost has the same root. The ids stay when the post that they name is deleted.
type Post struct{ ent.Schema }

// Fields of Post.
func (Post) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.Int64("author_id").Immutable(),
		field.Text("text"),
		field.Int64("edited_at").Default(0).Comment("when the author last changed text or data, in Unix milliseconds; 0: never"),
		field.Enum("visibility").GoType(Public),
		field.Int("like_count").Default(0),
		field.Int64("parent_id").Optional().Immutable().Comment("the post that this post replies to; null for a post that is not a reply"),
		field.Int64("parent_author_id").Optional().Immutable().Comment("who wrote the parent"),
		field.Int64("root_id").Optional().Immutable().Comment("the first post of the conversation; of a repost, the root of its original; null if there is none"),
		field.Int64("repost_of").Optional().Immutable().Comment("the original of a repost"),
		field.Int64("quote_of").Optional().Immutable().Comment("the post that this post quotes"),
		field.Bool("quote_withdrawn").Default(false).Comment("whether the author of the quoted post has withdrawn the quote"),
		field.Enum("reply_audience").GoType(Everyone).Optional().Comment("who may reply, of a root; null: everyone who sees it"),
		field.Enum("quote_audience").GoType(Everyone).Optional().Comment("who may quote; null: everyone who sees it"),
		field.Int64("changed_at").Default(0).
			Comment("when clients were last to be told of a change: of the post, of its root or of its original; Unix milliseconds, 0: never"),
		field.Int("reply_count").Default(0).Comment("direct replies"),
		field.Int("repost_count").Default(0),
		field.Int("quote_count").Default(0).Comment("quotes that are not withdrawn"),
	}
}

// Edges of Post.
func (Post) Edges() []ent.Edge { return []ent.Edge{owner("author", "author_id")} }

// Indexes of Post.
func (Post) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("author_id", "id"),
		index.Fields("author_id", "visibility", "id"),                                            // skips hidden posts, however many there are
		index.Fields("author_id", "edited_at").Annotations(entsql.IndexWhere("edited_at > 0")),   // for processes of version 0.1.0
		index.Fields("author_id", "changed_at").Annotations(entsql.IndexWhere("changed_at > 0")), // few posts change
		index.Fields("parent_id", "id").Annotations(entsql.IndexWhere("parent_id IS NOT NULL")),
		index.Fields("root_id", "id").Annotations(entsql.IndexWhere("root_id IS NOT NULL")),
		index.Fields("root_id", "id").StorageKey("post_conversation").Annotations(entsql.IndexWhere("parent_id IS NOT NULL")), // without reposts of replies
		index.Fields("parent_author_id", "id").Annotations(entsql.IndexWhere("parent_author_id IS NOT NULL")),                 // to delete a user
		index.Fields("repost_of", "id").Annotations(entsql.IndexWhere("repost_of IS NOT NULL")),
		index.Fields("author_id", "repost_of").Unique().Annotations(entsql.IndexWhere("repost_of IS NOT NULL")),
		index.Fields("quote_of", "id").Annotations(entsql.IndexWhere("quote_of IS NOT NULL")),
		index.Fields("id").StorageKey("post_newest_public").Annotations(entsql.IndexWhere(NewestPublic)),
	}
}

// NewestPublic is the SQL condition for the posts of the list of the newest public posts: neither
// replies nor reposts. An index uses it, so a change needs a migration.
const NewestPublic = "visibility = 'PUBLIC' AND parent_id IS NULL AND repost_of IS NULL"

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

// PostMention is a mention of a user in the text of a post.
type PostMention struct{ ent.Schema }

// Fields of PostMention.
func (PostMention) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("post_id").Immutable(),
		field.Int64("user_id").Immutable(),
		field.Int("start").Immutable().Comment("of the mention in the text, in code points"),
		field.Int("end").Immutable().Comment("likewise"),
	}
}

// Edges of PostMention. There is none to the user: a mention may be stored while its user is deleted.
func (PostMention) Edges() []ent.Edge { return []ent.Edge{owner("post", "post_id")} }

// Indexes of PostMention.
func (PostMention) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("post_id", "start").Unique(),
		index.Fields("user_id", "post_id"),
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
