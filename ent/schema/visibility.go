package schema

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

// Values lists the visibilities of the API from the widest to the narrowest.
func (Visibility) Values() []string {
	return []string{string(Public), string(Followers), string(Mutuals), string(Private)}
}
