package schema

import "strings"

// Visibility says who may see a post. It is the enum Visibility of the API and
// the column of the same name.
type Visibility string

const (
	// Public posts are for anyone, signed in or not.
	Public Visibility = "PUBLIC"
	// Followers posts are for the author and the author's followers.
	Followers Visibility = "FOLLOWERS"
	// Mutuals posts are for the author and those followers whom the author follows back.
	Mutuals Visibility = "MUTUALS"
	// Private posts are for the author alone.
	Private Visibility = "PRIVATE"
	// Deleted posts are for nobody. Their rows stay until their likes are deleted, which
	// are many. It is no value of the API.
	Deleted Visibility = "DELETED"
)

// The posts that a moderator hid are for their authors alone. What follows the underscore
// is who else sees them when they are shown again. These are no values of the API.
const (
	HiddenPublic    Visibility = "HIDDEN_PUBLIC"
	HiddenFollowers Visibility = "HIDDEN_FOLLOWERS"
	HiddenMutuals   Visibility = "HIDDEN_MUTUALS"
	HiddenPrivate   Visibility = "HIDDEN_PRIVATE"
)

const hidden = "HIDDEN_"

// Hidden returns the visibility of a post with this one after a moderator hid it.
func (v Visibility) Hidden() Visibility {
	if v == Deleted || v.IsHidden() {
		return v
	}
	return hidden + v
}

// IsHidden reports whether a moderator hid the post.
func (v Visibility) IsHidden() bool { return strings.HasPrefix(string(v), hidden) }

// Shown returns the visibility that the author chose: a value of the API, but for Deleted.
func (v Visibility) Shown() Visibility { return Visibility(strings.TrimPrefix(string(v), hidden)) }

// Values lists the visibilities of the API from the widest to the narrowest.
func (Visibility) Values() []string {
	return []string{string(Public), string(Followers), string(Mutuals), string(Private)}
}
