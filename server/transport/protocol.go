package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
	"tideline/server/transport/incoming"
)

// The close codes of graphql-transport-ws, used for the older protocol as well.
const (
	closeBadRequest      = 4400
	closeUnauthorized    = 4401
	closeForbidden       = 4403
	closeNotAcceptable   = 4406
	closeInitTimeout     = 4408
	closeSubscriberTwice = 4409
	closeTooManyInits    = 4429
)

// dialect is a subprotocol, by what the two do not share.
type dialect struct {
	protocol string
	start    string // client: begin an operation
	stop     string // client: end an operation
	next     string // server: a result
	beat     []byte // server: a sign of life that a page's script can see
	legacy   bool
}

var transportWS = &dialect{
	protocol: "graphql-transport-ws",
	start:    "subscribe",
	stop:     "complete",
	next:     "next",
	beat:     []byte(`{"type":"ping"}`),
}

// legacyWS is the protocol of the library subscriptions-transport-ws. Its name is
// that of the library that replaced it.
var legacyWS = &dialect{
	protocol: "graphql-ws",
	start:    "start",
	stop:     "stop",
	next:     "data",
	beat:     []byte(`{"type":"ka"}`),
	legacy:   true,
}

// dialectOf is the dialect of a subprotocol, nil for one that is not spoken here.
func dialectOf(protocol string) *dialect {
	for _, d := range []*dialect{transportWS, legacyWS} {
		if d.protocol == protocol {
			return d
		}
	}
	return nil
}

// message is one frame from a client.
type message struct {
	Type    string
	ID      string
	Payload json.RawMessage // nil when absent or null
}

// parseMessage reads a frame. Its error has no word of the client's.
func parseMessage(data []byte) (message, error) {
	fields, err := incoming.ParseObject(data)
	if err != nil {
		return message{}, err
	}
	var m message
	if json.Unmarshal(fields["type"], &m.Type) != nil || m.Type == "" {
		return message{}, errors.New("a message needs a type")
	}
	if raw, given := fields["id"]; given && json.Unmarshal(raw, &m.ID) != nil {
		return message{}, errors.New("an id must be a string")
	}
	if raw := fields["payload"]; !bytes.Equal(raw, []byte("null")) {
		m.Payload = raw
	}
	return m, nil
}

// frame is a message to the client. It is put together by hand: the payload is
// JSON already, and need not be checked and copied again.
func frame(kind, id string, payload []byte) []byte {
	out := beginFrame(kind, id, len(payload))
	if payload != nil {
		out = append(append(out, payloadKey...), payload...)
	}
	return append(out, '}')
}

const payloadKey = `,"payload":`

// beginFrame is a frame up to its payload, with room for one of that size.
func beginFrame(kind, id string, room int) []byte {
	out := make([]byte, 0, room+len(kind)+len(id)+48)
	out = append(out, `{"type":`...)
	out = strconv.AppendQuote(out, kind)
	if id != "" {
		quoted, _ := json.Marshal(id) // a string always marshals
		out = append(append(out, `,"id":`...), quoted...)
	}
	return out
}

// nextFrame is the message with a result of an operation.
func (d *dialect) nextFrame(id string, r exec.Response) ([]byte, error) {
	out, err := r.AppendJSON(append(beginFrame(d.next, id, len(r.Data)), payloadKey...))
	return append(out, '}'), err
}

// errorFrame is the message that ends an operation which could not be executed.
// The older protocol has room for one error only.
func (d *dialect) errorFrame(id string, errs gqlerror.List) ([]byte, error) {
	var told any = errs
	if d.legacy {
		told = errs[0]
	}
	payload, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return frame("error", id, payload), nil
}
