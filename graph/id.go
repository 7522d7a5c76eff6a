package graph

import (
	"tideline/ent"
	"tideline/feed/refusal"
)

// parseID parses a global id. Error: BadInput if this server did not make the id.
func parseID(text string) (kind string, id int64, err error) {
	kind, id, ok := ent.ParseNodeID(text)
	if !ok || (kind != "User" && kind != "Post" && kind != "Report") {
		return "", 0, refusal.New(refusal.NotAnID, "That is not an id of this server.")
	}
	return kind, id, nil
}

// idOf parses an argument that must be the id of an object of the kind.
func idOf(argument, text, kind string) (int64, error) {
	got, id, err := parseID(text)
	if err == nil && got != kind {
		err = refusal.New(refusal.NotAnID, "%s is the id of a %s, not of a %s.", argument, got, kind)
	}
	return id, err
}

// PostID returns the row id in a post's global id. Error: BadInput.
func PostID(text string) (int64, error) { return idOf("The argument", text, "Post") }

// existing returns the row ids of the texts that are valid ids of the kind.
func existing(kind string, texts []string) []int64 {
	var rows []int64
	for _, text := range texts {
		if of, id, ok := ent.ParseNodeID(text); ok && of == kind { // otherwise there is no such node
			rows = append(rows, id)
		}
	}
	return rows
}
