package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// WebhookEndpoint is an address of another server that receives events.
type WebhookEndpoint struct{ ent.Schema }

// Fields of WebhookEndpoint.
func (WebhookEndpoint) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("url").Immutable(),
		field.String("types").Immutable().Comment("between commas, as ,post.created,like.*, with a comma at each end"),
		field.String("secrets").Sensitive().Comment("JSON: what signs, and until when"),
		field.Int64("created_at").Immutable().Comment("Unix milliseconds, as all times of webhooks"),
		field.Int64("disabled_at").Default(0).Comment("0: it is told"),
		field.String("disabled_why").Default(""),
	}
}

// WebhookDelivery is an event for one endpoint. Its row is stored in the transaction of the change
// that the event describes. It refers to its endpoint without a foreign key, so that no change
// waits for, or fails because of, an endpoint that is being removed.
type WebhookDelivery struct{ ent.Schema }

// Fields of WebhookDelivery.
func (WebhookDelivery) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.Int64("endpoint_id").Immutable(),
		field.String("message").Immutable().Comment("the webhook-id: one for the event, at all endpoints and attempts"),
		field.String("type").Immutable(),
		field.String("subject").Immutable().Comment("what the event is about: events of one subject are delivered in the order of their ids"),
		field.Text("body").Immutable().Comment("JSON, but for what the next three columns have"),
		field.String("visibility").Optional().Nillable().Immutable().Comment("of the post, where the database decided it"),
		field.String("author_issuer").Optional().Nillable().Immutable().Comment("of the post's author, together with author_external_id"),
		field.Bytes("author_external_id").Optional().Immutable(),
		field.String("state").Comment("PENDING, DELIVERED or DEAD"),
		field.Int("attempts").Default(0),
		field.Int("status").Default(0).Comment("of the last answer; 0: there was none"),
		field.String("last_error").Default(""),
		field.Int64("claim").Default(0).Comment("names the attempt that may store how the delivery goes on"),
		field.Int64("due_at").Comment("when it is tried; while it is claimed, when the claim lapses"),
		field.Int64("created_at").Immutable(),
		field.Int64("retry_since").Comment("from when its age counts, beyond which it is given up"),
		field.Int64("ended_at").Default(0),
	}
}

// Indexes of WebhookDelivery.
func (WebhookDelivery) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("endpoint_id", "state", "due_at", "id"),
		index.Fields("endpoint_id", "subject", "state", "id"),
		index.Fields("state", "ended_at"),
	}
}
