package account

import (
	"crypto/rand"
	"encoding/base32"
	"strconv"
	"strings"
	"unicode"

	"tideline/feed/internal/text"
)

// NoPassword is stored instead of a password hash. No password matches it.
const NoPassword = "-"

// HandleFrom derives the handle of a new user from a requested handle: from a token of an issuer, or
// from an imported row. It folds the handle, removes a leading @, and cuts it at the next @. It
// replaces each run of characters other than a-z, 0-9 and _ with one _, removes _ from the ends, and
// cuts the handle to MaxHandle.
//
// The caller counts attempts from 0 and calls again if the handle is taken. Attempts 1 to 3 end with _
// and four random characters. Later attempts return user_ and the id, which is unique. Every attempt
// does so if the request has no usable character.
func HandleFrom(requested string, id int64, attempt int) string {
	name, _, _ := strings.Cut(handleOf(requested), "@")
	name = strings.Trim(strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}), "_"), "_")
	if name == "" || attempt > 3 {
		return "user_" + strconv.FormatInt(id, 36)
	}
	suffix := ""
	if attempt > 0 {
		var random [8]byte
		rand.Read(random[:])
		suffix = "_" + strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))[:4]
	}
	return strings.TrimRight(name[:min(len(name), MaxHandle-len(suffix))], "_") + suffix
}

// NameFrom derives the name of a new user from the name in a token. It replaces each run of white
// space, control characters and characters that change the direction of the text with one space,
// removes spaces from the ends, and cuts the name to MaxName characters. If nothing visible is left,
// it returns the handle.
func NameFrom(requested, handle string) string {
	name := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(requested, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || text.Turns(r)
	}), " ")
	if name = strings.TrimSpace(text.Cut(name, MaxName)); text.Visible(name) {
		return name
	}
	return handle
}
