package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
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

// dialect is what differs between the two subprotocols.
type dialect struct {
	protocol string
	start    string // client: begin an operation
	stop     string // client: end an operation
	next     string // server: a result
	beat     []byte // server: the sign of life that a page's script can see
	legacy   bool
}

var transportWS = &dialect{
	protocol: "graphql-transport-ws",
	start:    "subscribe",
	stop:     "complete",
	next:     "next",
	beat:     []byte(`{"type":"ping"}`),
}

// legacyWS is the protocol of subscriptions-transport-ws, whose name,
// confusingly, is that of the library that replaced it.
var legacyWS = &dialect{
	protocol: "graphql-ws",
	start:    "start",
	stop:     "stop",
	next:     "data",
	beat:     []byte(`{"type":"ka"}`),
	legacy:   true,
}

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

func parseMessage(data []byte) (message, error) {
	fields, err := parseObject(data)
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

// initToken takes the token out of connection_init's payload: "" for an
// anonymous client, ok=false for one that says who it is and cannot be right.
func initToken(payload json.RawMessage) (token string, ok bool, err error) {
	if payload == nil {
		return "", true, nil
	}
	fields, err := parseObject(payload)
	if err != nil {
		return "", false, err
	}
	for _, name := range []string{"Authorization", "authorization"} {
		raw, given := fields[name]
		if !given || bytes.Equal(raw, []byte("null")) {
			continue
		}
		var value string
		if json.Unmarshal(raw, &value) != nil {
			return "", false, nil
		}
		token, ok = bearer(value)
		return token, ok, nil
	}
	return "", true, nil
}

// frame builds a message to the client by hand: the payload, most of it, is
// JSON already and need not be checked and copied again.
func frame(kind, id string, payload []byte) []byte {
	out := beginFrame(kind, id, len(payload))
	if payload != nil {
		out = append(append(out, `,"payload":`...), payload...)
	}
	return append(out, '}')
}

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

func (d *dialect) nextFrame(id string, r exec.Response) ([]byte, error) {
	out := append(beginFrame(d.next, id, len(r.Data)), `,"payload":`...)
	out, err := r.AppendJSON(out)
	if err != nil {
		return nil, err
	}
	return append(out, '}'), nil
}

// errorFrame ends an operation that could not be executed. The older protocol
// has room for one error only.
func (d *dialect) errorFrame(id string, errs gqlerror.List) ([]byte, error) {
	var what any = errs
	if d.legacy {
		what = errs[0]
	}
	payload, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	return frame("error", id, payload), nil
}
