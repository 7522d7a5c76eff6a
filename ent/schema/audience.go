package schema

// Audience says who, of those who see a post, may reply to it or quote it. It is the enum Audience
// of the API. The empty value, which most posts have, means Everyone.
type Audience string

// The audiences.
const (
	Everyone      Audience = "EVERYONE"
	OnlyFollowers Audience = "FOLLOWERS" // users who follow the author
	OnlyMutuals   Audience = "MUTUALS"   // users who follow the author and are followed back
	OnlyMentioned Audience = "MENTIONED" // users that the post mentions
	OnlyAuthors   Audience = "NOBODY"    // the author alone
)

// Values lists the audiences from the widest to the narrowest.
func (Audience) Values() []string {
	return []string{string(Everyone), string(OnlyFollowers), string(OnlyMutuals), string(OnlyMentioned), string(OnlyAuthors)}
}

// HomeReplies says which replies of others a user's home timeline has. It is the enum HomeReplies
// of the API.
type HomeReplies string

// The values of HomeReplies.
const (
	// AllReplies: every reply by a user whom the viewer follows.
	AllReplies HomeReplies = "ALL"
	// FollowedReplies: a reply by a user whom the viewer follows, to a user whom the viewer follows
	// or to the viewer.
	FollowedReplies HomeReplies = "FOLLOWED"
	// NoReplies: none.
	NoReplies HomeReplies = "NONE"
)

// Values lists the settings from the widest to the narrowest.
func (HomeReplies) Values() []string {
	return []string{string(AllReplies), string(FollowedReplies), string(NoReplies)}
}
