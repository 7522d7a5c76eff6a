package incoming

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// A credential is what a client shows to say who it is: the token of the header
// Authorization, and after a space the value of ActAs where there is one. The empty one is
// an anonymous client's.

// ActAs is the header, and the field of connection_init, with the user for whom a server
// acts.
const ActAs = "Tideline-Act-As"

const authorization = "Authorization"

// credential puts a credential together; ok is false when it cannot be one.
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

// Credential is the credential of a request; ok is false when it cannot be one.
func Credential(h http.Header) (text string, ok bool) {
	if len(h.Values(authorization)) > 1 || len(h.Values(ActAs)) > 1 {
		return "", false
	}
	return credential(h.Get(authorization), h.Get(ActAs))
}

// InitCredential is the credential in the payload of connection_init, empty for an
// anonymous client; ok is false when it cannot be one. Its error is a payload that is no
// object.
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

// field is a text by its name, or by that in lower case; empty without one.
func field(fields map[string]json.RawMessage, name string) (value string, ok bool) {
	for _, name := range []string{name, strings.ToLower(name)} {
		if raw, given := fields[name]; given && !bytes.Equal(raw, []byte("null")) {
			return value, json.Unmarshal(raw, &value) == nil
		}
	}
	return "", true
}
