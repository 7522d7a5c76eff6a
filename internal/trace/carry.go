package trace

import (
	"bytes"
	"context"
	"encoding/json"
)

// Carry returns the payload of a job, a JSON object, with the journey of ctx in a field of its own. It returns the payload
// as it is when there is none, or when it has one already.
func Carry(ctx context.Context, payload json.RawMessage) json.RawMessage {
	carried := Carried(ctx)
	if carried == "" || len(payload) < 2 || payload[0] != '{' || bytes.Contains(payload, []byte(field)) {
		return payload
	}
	out := append(make([]byte, 0, len(payload)+len(field)+len(carried)+4), '{')
	out = append(append(append(out, field+`:"`...), carried...), '"')
	if payload[1] != '}' {
		out = append(out, ',')
	}
	return append(out, payload[1:]...)
}

// field is the name of the field as it is in a payload; in a text its quotes would be escaped.
const field = `"` + traceparent + `"`

// Job goes on with the journey in the payload of a job.
func (t *Tracer) Job(ctx context.Context, kind string, payload json.RawMessage) (context.Context, *Span) {
	if t == nil || !bytes.Contains(payload, []byte(field)) {
		return ctx, nil
	}
	var carrier struct{ Traceparent string }
	if json.Unmarshal(payload, &carrier) != nil {
		return ctx, nil
	}
	return t.Continue(ctx, carrier.Traceparent, "job", kind)
}
