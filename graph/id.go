package graph

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

// A global id is opaque to clients: the type and the row's id in base64.
var idEncoding = base64.RawURLEncoding.Strict()

func globalID(kind string, id int64) string {
	return idEncoding.EncodeToString([]byte(kind + ":" + strconv.FormatInt(id, 10)))
}

func userID(u *ent.User) string { return globalID("User", u.ID) }
func postID(p *ent.Post) string { return globalID("Post", p.ID) }

// parseID splits a global id. Error: BadInput for what no server of ours made.
func parseID(text string) (kind string, id int64, err error) {
	raw, err := idEncoding.DecodeString(text)
	kind, digits, ok := strings.Cut(string(raw), ":")
	if err == nil && ok {
		id, err = strconv.ParseInt(digits, 10, 64)
	}
	// Only the canonical spelling of a known type passes.
	if err != nil || id <= 0 || (kind != "User" && kind != "Post") || globalID(kind, id) != text {
		return "", 0, &feed.Error{Code: feed.BadInput, Message: "That is not an id of this server."}
	}
	return kind, id, nil
}

// idArg reads an argument that must be the id of a kind.
func idArg(args exec.Args, name, kind string) (int64, error) {
	got, id, err := parseID(*args.String(name))
	if err == nil && got != kind {
		err = &feed.Error{Code: feed.BadInput, Message: fmt.Sprintf("%s is the id of a %s, not of a %s.", name, got, kind)}
	}
	return id, err
}

// PostID is the row's id behind a post's global id. Error: BadInput.
func PostID(text string) (int64, error) {
	kind, id, err := parseID(text)
	if err == nil && kind != "Post" {
		err = &feed.Error{Code: feed.BadInput, Message: "That is the id of a " + kind + "."}
	}
	return id, err
}
