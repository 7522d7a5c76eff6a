package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// MutedWord hides posts by others that contain the word from the user's timeline.
type MutedWord struct{ ent.Schema }

// Fields of MutedWord.
func (MutedWord) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("user_id").Immutable(),
		field.String("word").MaxLen(1024).Comment("a word or phrase, normalised by package visibility"),
		field.String("head").MaxLen(1024).Comment("the first part of the word: a text without this part does not contain the word"),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Edges of MutedWord.
func (MutedWord) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of MutedWord. The second one finds the users who mute a word of a post.
func (MutedWord) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("user_id", "word").Unique(),
		index.Fields("head", "user_id"),
	}
}
