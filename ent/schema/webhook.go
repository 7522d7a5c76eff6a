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
		field.String("types").Immutable().Comment("separated by commas, with a comma at each end: ,post.created,like.*,"),
		field.String("secrets").Sensitive().Comment("JSON: the secrets that sign, and until when"),
		field.Int64("created_at").Immutable().Comment("Unix milliseconds, like all times of webhooks"),
		field.Int64("disabled_at").Default(0).Comment("0: it receives events"),
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
		field.String("message").Immutable().Comment("the webhook-id: the same for all endpoints and attempts of an event"),
		field.String("type").Immutable(),
		field.String("subject").Immutable().Comment("the subject of the event: events of one subject are delivered in the order of their ids"),
		field.Text("body").Immutable().Comment("JSON"),
		field.String("state").Comment("PENDING, DELIVERED or DEAD"),
		field.Int("attempts").Default(0),
		field.Int("status").Default(0).Comment("the HTTP status of the last answer; 0: there was none"),
		field.String("last_error").Default(""),
		field.Int64("claim").Default(0).Comment("identifies the attempt that may change the row"),
		field.Int64("due_at").Comment("when it is tried; while it is claimed, when the claim expires"),
		field.Int64("created_at").Immutable(),
		field.Int64("retry_since").Comment("the start of the age after which it is given up"),
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
