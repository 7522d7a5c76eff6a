package trace

import (
	"bytes"
	"context"
	"encoding/json"
)

// Carry returns the payload of a job, a JSON object, with the trace of ctx in an additional field.
// It returns the payload unchanged if ctx is not traced or the payload has the field already.
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

// field is the quoted field name as it appears in a payload. Inside a JSON string, its quotes would
// be escaped.
const field = `"` + traceparent + `"`

// Job continues the trace in the payload of a job.
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
