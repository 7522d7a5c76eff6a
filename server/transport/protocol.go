package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
	"tideline/server/transport/incoming"
)

// subprotocol is the supported subprotocol. olderSubprotocol is the one of the library
// subscriptions-transport-ws; its name is the name of the library that replaced it. A client that
// offers only the older one is refused with a close frame, since a browser hides the status and body of
// a failed handshake from the page.
const (
	subprotocol      = "graphql-transport-ws"
	olderSubprotocol = "graphql-ws"
)

// Close codes of the protocol.
const (
	closeBadRequest      = 4400
	closeUnauthorized    = 4401
	closeForbidden       = 4403
	closeNotAcceptable   = 4406
	closeInitTimeout     = 4408
	closeSubscriberTwice = 4409
	closeTooManyInits    = 4429
)

// maxID is the maximum length of an operation's id in bytes. A subscription keeps its id, and every message of it
// has the id as JSON, which may be six times as long.
const maxID = 128

// beatMessage is a heartbeat that a page's script can see.
var beatMessage = []byte(`{"type":"ping"}`)

// message is one message from a client.
type message struct {
	Type    string
	ID      string
	Payload json.RawMessage // nil when absent or null
}

// parseMessage parses a message. Its errors contain no text of the client.
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
	if len(m.ID) > maxID {
		return message{}, fmt.Errorf("an id may have at most %d bytes", maxID)
	}
	if raw := fields["payload"]; !bytes.Equal(raw, []byte("null")) {
		m.Payload = raw
	}
	return m, nil
}

// frame returns a message to the client. It is built without encoding/json, since the payload is JSON already
// and need not be checked and copied again.
func frame(kind, id string, payload []byte) []byte {
	out := beginFrame(kind, id, len(payload))
	if payload != nil {
		out = append(append(out, payloadKey...), payload...)
	}
	return append(out, '}')
}

const payloadKey = `,"payload":`

// beginFrame returns the beginning of a frame up to its payload, with capacity for a payload of room bytes.
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

// nextFrame returns the message with a result of an operation.
func nextFrame(id string, r exec.Response) ([]byte, error) {
	out, err := r.AppendJSON(append(beginFrame("next", id, len(r.Data)), payloadKey...))
	return append(out, '}'), err
}

// errorFrame returns the message that ends an operation that could not be executed.
func errorFrame(id string, errs gqlerror.List) ([]byte, error) {
	payload, err := json.Marshal(errs)
	if err != nil {
		return nil, err
	}
	return frame("error", id, payload), nil
}
