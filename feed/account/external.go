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

// HandleFrom derives the handle of a new user from the handle in the token. It folds it, cuts it
// at an @ inside, replaces each run of other characters by _, and cuts it to MaxHandle. If the
// handle is taken, the next attempts add _ and four random characters. The last attempt, and a
// token without a usable handle, use user_ and the id, which is unique.
func HandleFrom(claimed string, id int64, attempt int) string {
	name, _, _ := strings.Cut(handleOf(claimed), "@")
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

// NameFrom derives the name of a new user from the name in the token. It joins the name into one
// line, removes control characters and characters that change the direction of the text, and cuts
// it to MaxName characters. If nothing visible is left, it returns the handle.
func NameFrom(claimed, handle string) string {
	name := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(claimed, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || text.Turns(r)
	}), " ")
	if name = strings.TrimSpace(text.Cut(name, MaxName)); text.Visible(name) {
		return name
	}
	return handle
}
