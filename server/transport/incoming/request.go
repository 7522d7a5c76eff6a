// Package incoming parses requests of clients: GraphQL requests of all transports, credentials,
// origins and WebSocket messages.
package incoming

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"tideline/graph/exec"
)

// The parameters of a GraphQL request, on every transport. Their names are case-sensitive: encoding/json
// alone would also accept "QUERY" for "query".
const (
	paramQuery     = "query"
	paramOperation = "operationName"
	paramVariables = "variables"
	paramExtension = "extensions"
)

// ParseObject parses exactly one JSON object in valid UTF-8.
func ParseObject(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return nil, errors.New("it is an array: send one request at a time")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, errors.New("it is not one well-formed JSON object")
	}
	if fields == nil {
		return nil, errors.New("it is null, not a JSON object")
	}
	return fields, nil
}

// Parse parses a GraphQL request in JSON. It ignores unknown parameters, as the specification requires.
func Parse(data []byte) (exec.Request, error) {
	fields, err := ParseObject(data)
	if err != nil {
		return exec.Request{}, err
	}
	var r exec.Request
	for _, param := range []struct {
		name, kind string
		into       any
	}{
		{paramQuery, "a string", &r.Query},
		{paramOperation, "a string or null", &r.OperationName},
		{paramVariables, "an object or null", &r.Variables},
		{paramExtension, "an object or null", &r.Extensions},
	} {
		raw, given := fields[param.name]
		if !given {
			continue
		}
		// Numbers stay as written: a float64 would round large ones.
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(param.into); err != nil {
			return exec.Request{}, fmt.Errorf("%q must be %s", param.name, param.kind)
		}
	}
	if r.Query == "" && r.Extensions["persistedQuery"] == nil {
		return exec.Request{}, fmt.Errorf("%q must be a string with a GraphQL document", paramQuery)
	}
	return r, nil
}

// ParseParams parses a GraphQL request from the parameters of a GET request.
func ParseParams(raw string) (exec.Request, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return exec.Request{}, errors.New("the query string is malformed")
	}
	fields := make(map[string]json.RawMessage)
	for _, name := range []string{paramQuery, paramOperation, paramVariables, paramExtension} {
		given := values[name]
		if len(given) > 1 {
			return exec.Request{}, fmt.Errorf("%q is given more than once", name)
		}
		if len(given) == 0 || given[0] == "" {
			continue
		}
		if !utf8.ValidString(given[0]) {
			return exec.Request{}, fmt.Errorf("%q is not valid UTF-8", name)
		}
		fields[name] = json.RawMessage(given[0])
		if name == paramQuery || name == paramOperation {
			fields[name], _ = json.Marshal(given[0]) // a string always marshals
		}
	}
	for _, name := range []string{paramVariables, paramExtension} {
		if value, given := fields[name]; given && !json.Valid(value) {
			return exec.Request{}, fmt.Errorf("%q is not well-formed JSON", name)
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return exec.Request{}, fmt.Errorf("read parameters: %w", err)
	}
	return Parse(data)
}

// The media types of answers. With TypeResponse, defined by the specification, a request error has an HTTP
// error status. Clients of the older TypeJSON expect 200.
const (
	TypeResponse = "application/graphql-response+json"
	TypeJSON     = "application/json"
)

// Negotiate chooses the media type of the answer from Accept headers. ok is false if the client accepts
// neither type. If the client names TypeResponse with at least the quality of TypeJSON, it gets TypeResponse.
// A client without an Accept header, or with wildcards only, gets TypeJSON.
func Negotiate(accept []string) (mediaType string, ok bool) {
	if len(accept) == 0 {
		return TypeJSON, true
	}
	best := 0.0
	for _, item := range strings.Split(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(item))
		if err != nil {
			continue
		}
		offered := TypeJSON
		switch name {
		case TypeResponse:
			offered = TypeResponse
		case TypeJSON, "application/*", "*/*":
		default:
			continue
		}
		q := Quality(params["q"])
		if q > best || q == best && q > 0 && offered == TypeResponse {
			best, mediaType = q, offered
		}
	}
	return mediaType, mediaType != ""
}

// Quality parses the q parameter of a media type: 1 if it is missing, 0 if it is malformed.
func Quality(q string) float64 {
	if q == "" {
		return 1
	}
	var value float64
	if _, err := fmt.Sscanf(q, "%g", &value); err != nil || value < 0 || value > 1 {
		return 0
	}
	return value
}

// IsJSON reports whether a request's body is declared as JSON in UTF-8. Other bodies are refused: browsers
// send simpler types to other origins without a preflight request.
func IsJSON(contentType string) bool {
	name, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && name == TypeJSON && (!given || strings.EqualFold(charset, "utf-8"))
}
