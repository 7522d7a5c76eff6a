package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// APIKey is a key with which another server makes calls. Its secret is never stored.
type APIKey struct{ ent.Schema }

// Fields of APIKey.
func (APIKey) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("name").Immutable(),
		field.String("issuer").Default("").MaxLen(255).Immutable().Comment("the issuer whose user ids the key uses, as User.issuer"),
		field.String("scopes").Immutable().Comment("separated by commas"),
		field.Bytes("secret_hash").MaxLen(32).Immutable().Sensitive().Comment("SHA-256 of the secret, which is random"),
		field.Time("created_at").Immutable().Default(now),
		field.Time("last_used_at").Optional().Nillable().Comment("to the minute"),
		field.Time("revoked_at").Optional().Nillable(),
	}
}
