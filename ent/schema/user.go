// Package schema is the hand-written description of the tables. Package ent is generated from it.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// plainID is a primary key that the program chooses, not the database.
func plainID() ent.Field {
	return field.Int64("id").Annotations(entsql.Annotation{Incremental: new(bool)})
}

// now returns the time in UTC, because SQLite compares times as text.
func now() time.Time { return time.Now().UTC() }

// User is an account and its public profile. The transaction that adds or removes a counted row
// also changes the counter, under a lock on the user's row or in UserDelta.
type User struct{ ent.Schema }

// Fields of User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.String("handle").MaxLen(30),
		field.String("name").Default(""),
		field.Text("indexed_as").Optional().Nillable().
			Comment("the handle and name whose words UserWord has; if the user has others, a worker writes the words again"),
		field.String("bio").Default(""),
		field.String("avatar_url").Default("").Comment("the URL of a picture, http or https; shown if its host is allowed"),
		field.Text("links").Default("").Comment("URLs, http or https, one per line"),
		field.String("password_hash").Sensitive(),
		field.String("issuer").MaxLen(255).Optional().Nillable().Immutable().
			Comment("the issuer whose tokens sign the user in; null for an account that was created here"),
		field.Bytes("external_id").MaxLen(255).Optional().Immutable().
			Comment("the user's id at the issuer: bytes, because it may contain a zero byte, which PostgreSQL's texts cannot"),
		field.Time("signed_out_before").Optional().Nillable().
			Comment("tokens issued before are refused; set when the user's sessions are deleted"),
		field.Bool("approves_followers").Default(false),
		field.Enum("default_visibility").GoType(Public).Default(string(Public)),
		field.Int("follower_count").Default(0),
		field.Int("following_count").Default(0),
		field.Enum("home_replies").GoType(AllReplies).Default(string(FollowedReplies)).Comment("which replies of others the home timeline has"),
		field.Int("post_count").Default(0).Comment("all posts, including private ones, without replies and reposts, whose visibility depends on other posts"),
		field.Int("public_post_count").Default(0),
		field.Int("followers_post_count").Default(0),
		field.Int("mutuals_post_count").Default(0),
		field.Int64("last_post_id").Default(0).
			Comment("the newest post: with it, readers find the authors who can contribute to a page"),
		field.Enum("fan_out_mode").Values("PUSH", "PUSH_TO_PULL", "PULL", "PULL_TO_PUSH").Default("PUSH").
			Comment("whether posts are pushed to inboxes, merged by readers, or both during a change from one to the other"),
		field.Int64("fan_out_mode_since").Default(0).Comment("Unix milliseconds"),
		field.Bool("hidden").Default(false).Comment("whether HiddenUser has a row of the user, for statements that lock the user's row"),
		field.Enum("role").Values("USER", "MODERATOR", "ADMIN").Default("USER").Comment("what the user may do; see feed/moderation"),
		field.Time("created_at").Immutable().Default(now),
	}
}

// Indexes of User.
func (User) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("handle").Unique(),
		index.Fields("issuer", "external_id").Unique(),
		index.Fields("fan_out_mode"), // without a counter: PostgreSQL rewrites a changed row's index entries only if an indexed column changes
		index.Fields("id").StorageKey("user_unindexed").Annotations(entsql.IndexWhere(Unindexed)),
	}
}

// Unindexed is the SQL condition for users whose words belong to a former handle or name. An index
// uses it, so a change needs a migration.
const Unindexed = "indexed_as IS DISTINCT FROM (handle || ' ' || name)"

// UserWord is a word of a user's handle or name. Users are found by the beginning of a word.
type UserWord struct{ ent.Schema }

// Fields of UserWord.
func (UserWord) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Bytes("word").MaxLen(400).Immutable().
			Comment("folded, in UTF-8: bytes, because their order is the same in every database"),
		field.Int64("user_id").Immutable(),
	}
}

// Edges of UserWord.
func (UserWord) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of UserWord.
func (UserWord) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("word", "user_id").Unique(), // the users with a word that begins so
		index.Fields("user_id", "word"),
	}
}

// Session is a log-in, or stands for all tokens that an issuer gave a user. Tokens are never
// stored.
type Session struct{ ent.Schema }

// Fields of Session.
func (Session) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Bytes("token_hash").MaxLen(32).Immutable().Sensitive().Comment("SHA-256 of the token, or the key of an issuer's user"),
		field.Int64("user_id").Immutable(),
		field.Time("created_at").Immutable().Default(now),
		field.Time("expires_at"),
		field.Time("tokens_since").Optional().Nillable().
			Comment("for an issuer's user: User.signed_out_before when the session began; tokens issued before are refused"),
		field.String("user_agent").Default("").Immutable().Comment("the User-Agent header of the client that logged in"),
	}
}

// Edges of Session.
func (Session) Edges() []ent.Edge { return []ent.Edge{owner("user", "user_id")} }

// Indexes of Session.
func (Session) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("token_hash").Unique(),
		index.Fields("user_id"),
		index.Fields("expires_at"),
	}
}

// ReadMarker is the point up to which a user has read the home timeline. It only moves forwards.
type ReadMarker struct{ ent.Schema }

// Fields of ReadMarker.
func (ReadMarker) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.Int64("post_id").Default(0).Comment("the newest post that was read"),
	}
}

// Annotations of ReadMarker.
func (ReadMarker) Annotations() []schema.Annotation {
	return []schema.Annotation{schema.Comment("one row per user, with the user's id as key")}
}

// HiddenUser is a user who is invisible to everybody, because the account is being deleted or will
// be, or because a moderator suspended it.
type HiddenUser struct{ ent.Schema }

// Fields of HiddenUser.
func (HiddenUser) Fields() []ent.Field {
	return []ent.Field{
		plainID(),
		field.Enum("state").Values("LEAVING", "SUSPENDED", "DELETING", "GONE").
			Comment("LEAVING: can be restored; SUSPENDED: until a moderator or time ends it; DELETING: is being deleted; GONE: the row is gone and remains are being deleted"),
		field.Time("due_at").Comment("when the state ends by itself; for SUSPENDED, when a scheduled deletion ends that continues afterwards, or the year 9999"),
		field.Bytes("identity").MaxLen(32).Optional().
			Comment("the key of an issuer's user, as Session.token_hash, once the deletion has begun: tokens from before its end create no new user"),
		field.Text("reason").Default("").Comment("why a moderator suspended the user, in words for the user"),
		field.Time("suspended_until").Optional().Nillable().Comment("when the suspension ends by itself; null if only a moderator ends it"),
	}
}

// Indexes of HiddenUser.
func (HiddenUser) Indexes() []ent.Index {
	return []ent.Index{index.Fields("due_at"), index.Fields("identity"), index.Fields("suspended_until"), index.Fields("state", "id")}
}

// Annotations of HiddenUser.
func (HiddenUser) Annotations() []schema.Annotation {
	return []schema.Annotation{schema.Comment("the key is the user's id; no foreign key, because the row outlives the user's row")}
}
