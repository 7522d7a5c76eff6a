package incoming

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// A credential identifies the client: the token of the header Authorization, followed by a space and the
// value of ActAs if it is set. The empty credential is anonymous.

// ActAs names the user for whom a server acts: a header, or a field of connection_init.
const ActAs = "Tideline-Act-As"

const authorization = "Authorization"

// credential combines a token and a user into a credential. ok is false if they are malformed.
func credential(bearer, actAs string) (text string, ok bool) {
	token := ""
	if bearer != "" {
		scheme, rest, found := strings.Cut(bearer, " ")
		token = strings.TrimSpace(rest)
		if !found || token == "" || !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
	}
	if actAs = strings.TrimSpace(actAs); actAs == "" {
		return token, true
	}
	return token + " " + actAs, token != ""
}

// Credential returns the credential of a request. ok is false if it is malformed.
func Credential(h http.Header) (text string, ok bool) {
	if len(h.Values(authorization)) > 1 || len(h.Values(ActAs)) > 1 {
		return "", false
	}
	return credential(h.Get(authorization), h.Get(ActAs))
}

// InitCredential returns the credential in the payload of connection_init, empty for an anonymous client. ok
// is false if it is malformed. It returns an error if the payload is not an object.
func InitCredential(payload json.RawMessage) (text string, ok bool, err error) {
	if payload == nil {
		return "", true, nil
	}
	fields, err := ParseObject(payload)
	if err != nil {
		return "", false, err
	}
	bearer, ok := field(fields, authorization)
	actAs, fits := field(fields, ActAs)
	if !ok || !fits {
		return "", false, nil
	}
	text, ok = credential(bearer, actAs)
	return text, ok, nil
}

// field returns the string field with the name, or with the name in lower case.
// It is empty if neither exists.
func field(fields map[string]json.RawMessage, name string) (value string, ok bool) {
	for _, name := range []string{name, strings.ToLower(name)} {
		if raw, given := fields[name]; given && !bytes.Equal(raw, []byte("null")) {
			return value, json.Unmarshal(raw, &value) == nil
		}
	}
	return "", true
}
