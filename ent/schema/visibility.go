package schema

import "strings"

// Visibility says who may see a post. It is the enum Visibility of the API and the column of the
// same name.
type Visibility string

const (
	// Public posts are visible to everybody, signed in or not.
	Public Visibility = "PUBLIC"
	// Followers posts are visible to the author and the author's followers.
	Followers Visibility = "FOLLOWERS"
	// Mutuals posts are visible to the author and to followers that the author follows back.
	Mutuals Visibility = "MUTUALS"
	// Private posts are visible only to the author.
	Private Visibility = "PRIVATE"
	// Deleted posts are visible to nobody. Their rows stay until their many likes are deleted. It
	// is not a value of the API.
	Deleted Visibility = "DELETED"
)

// Posts that a moderator hid are visible only to their authors. The part after the underscore is
// the visibility that returns when the post is shown again. These are not values of the API.
const (
	HiddenPublic    Visibility = "HIDDEN_PUBLIC"
	HiddenFollowers Visibility = "HIDDEN_FOLLOWERS"
	HiddenMutuals   Visibility = "HIDDEN_MUTUALS"
	HiddenPrivate   Visibility = "HIDDEN_PRIVATE"
)

const hidden = "HIDDEN_"

// Hidden returns the visibility that a post with this visibility gets when a moderator hides it.
func (v Visibility) Hidden() Visibility {
	if v == Deleted || v.IsHidden() {
		return v
	}
	return hidden + v
}

// IsHidden reports whether a moderator hid the post.
func (v Visibility) IsHidden() bool { return strings.HasPrefix(string(v), hidden) }

// Shown returns the visibility that the author chose. It is a value of the API, except for Deleted.
func (v Visibility) Shown() Visibility { return Visibility(strings.TrimPrefix(string(v), hidden)) }

// Values lists the visibilities of the API from the widest to the narrowest.
func (Visibility) Values() []string {
	return []string{string(Public), string(Followers), string(Mutuals), string(Private)}
}
