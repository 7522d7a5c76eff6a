package exec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Response is the answer to one operation, or to one event of a subscription.
type Response struct {
	Data       json.RawMessage // nil when nothing was executed: a request error
	Errors     gqlerror.List
	Extensions map[string]any
}

// AppendJSON appends the response to b as the GraphQL specification requires: errors first, and no data after
// a request error. It does not escape HTML and does not validate Data again, so it is cheaper than
// MarshalJSON. It fails only if the errors or extensions cannot be encoded as JSON.
func (r Response) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	var err error
	if len(r.Errors) > 0 {
		b = append(b, `"errors":`...)
		if b, err = appendMarshaled(b, r.Errors); err != nil {
			return nil, fmt.Errorf("encode the errors of a response: %w", err)
		}
	}
	if r.Data != nil {
		if len(r.Errors) > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `"data":`...), r.Data...)
	}
	if len(r.Extensions) > 0 {
		if len(r.Errors) > 0 || r.Data != nil {
			b = append(b, ',')
		}
		b = append(b, `"extensions":`...)
		if b, err = appendMarshaled(b, r.Extensions); err != nil {
			return nil, fmt.Errorf("encode the extensions of a response: %w", err)
		}
	}
	return append(b, '}'), nil
}

// MarshalJSON is AppendJSON for encoding/json, which validates and copies the result again.
func (r Response) MarshalJSON() ([]byte, error) {
	return r.AppendJSON(nil)
}

func appendMarshaled(b []byte, v any) ([]byte, error) {
	buf := bytes.NewBuffer(b)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
