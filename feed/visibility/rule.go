// Package visibility decides who may see a post.
//
// The rule is mayShow, the only function that compares visibilities. This package is also the only
// one that reads posts for a viewer, and a post leaves it only after mayShow allowed it. The
// viewer's relation to the author is read together with the post, after the request began. So a
// wrong entry in a timeline or a queue can hide a post, but never show one.
package visibility

import (
	"fmt"

	"tideline/ent"
	"tideline/ent/schema"
)

// Relation describes how a viewer and another user are related.
type Relation struct {
	Following  bool // the viewer follows the other
	FollowedBy bool // the other follows the viewer
	Blocking   bool // the viewer blocks the other
	BlockedBy  bool // the other blocks the viewer
	Muting     bool // the viewer mutes the other
	Requested  bool // the viewer asked to follow and waits for the answer
	Hidden     bool // nobody sees the other; see ent/schema.HiddenUser
	// MutesWord: the viewer mutes a word in the post. It is set only in a relation that was read
	// with a post.
	MutesWord bool
}

// Mutual reports whether the two follow each other, which makes them friends.
func (r Relation) Mutual() bool { return r.Following && r.FollowedBy }

// Surface is the place where a post is about to be shown. A viewer may be allowed to see a post in
// its author's profile but not in the home timeline.
type Surface uint8

// The surfaces.
const (
	// Direct: by id, in a profile, or as the target of a like.
	Direct Surface = iota
	// Home: in the home timeline or its live events.
	Home
	// Tagged: in the list of a tag, which also has posts by people that the viewer does not follow.
	Tagged
	// Inbox: nobody is shown the post here. It is stored where home timelines are read. The rule is
	// the same as for Home, but ignores muted words.
	Inbox
)

// mayShow decides whether a viewer with the relation r to the author may be shown p
// on the surface.
func mayShow(on Surface, viewer int64, r Relation, p *ent.Post) bool {
	if r.Hidden || p.Visibility == schema.Deleted {
		return false
	}
	if viewer != 0 && p.AuthorID == viewer {
		return true
	}
	if r.Blocking || r.BlockedBy {
		return false
	}
	if on != Direct && (r.Muting || on != Tagged && !r.Following || on != Inbox && r.MutesWord) {
		return false
	}
	switch p.Visibility {
	case schema.Public:
		return true
	case schema.Followers:
		return r.Following
	case schema.Mutuals:
		return r.Mutual()
	default:
		return false
	}
}

// whyNot names the rule of mayShow that hides a post from a home timeline.
func whyNot(r Relation, p *ent.Post) string {
	switch {
	case r.Hidden:
		return "the author's account is hidden"
	case r.Blocking:
		return "the viewer blocks the author"
	case r.BlockedBy:
		return "the author blocks the viewer"
	case !r.Following:
		return "the viewer does not follow the author"
	case r.Muting:
		return "the viewer mutes the author"
	case r.MutesWord:
		return "the viewer mutes a word of it"
	case p.Visibility.IsHidden():
		return "a moderator hid it"
	case p.Visibility == schema.Mutuals:
		return "it is for friends, and the author does not follow the viewer"
	default:
		return "it is for the author alone"
	}
}

// seen lists the visibilities of posts that somebody, if only the author, may see.
var seen = []schema.Visibility{
	schema.Public, schema.Followers, schema.Mutuals, schema.Private,
	schema.HiddenPublic, schema.HiddenFollowers, schema.HiddenMutuals, schema.HiddenPrivate,
}

// visibleTo returns the visibilities of the author's posts that mayShow can allow, so that SQL need
// not skip hidden posts one by one. It is a filter and never a verdict: its relation is older than
// the posts that are read with it. Each post still passes mayShow, with the relation that was read
// with the post.
func visibleTo(on Surface, viewer int64, r Relation, author int64) []schema.Visibility {
	var visible []schema.Visibility
	for _, v := range seen {
		if mayShow(on, viewer, r, &ent.Post{AuthorID: author, Visibility: v}) {
			visible = append(visible, v)
		}
	}
	return visible
}

// PostCount returns how many of the author's posts a viewer with the relation r to the author may
// see. A nil r means an anonymous viewer. It costs no query.
func PostCount(viewer int64, r *Relation, author *ent.User) int {
	if r == nil {
		r = &Relation{}
	}
	count := map[schema.Visibility]int{
		schema.Public: author.PublicPostCount, schema.Followers: author.FollowersPostCount, schema.Mutuals: author.MutualsPostCount,
		schema.Private: author.PostCount - author.PublicPostCount - author.FollowersPostCount - author.MutualsPostCount,
	}
	n := 0
	for _, v := range visibleTo(Direct, viewer, *r, author.ID) {
		n += count[v]
	}
	return n
}

// AddToPostCount adds n to the author's counters of posts with the visibility. Private posts, and
// posts that a moderator hid, have no counter of their own: their number is the total minus the
// other counters.
func AddToPostCount(author *ent.UserUpdateOne, v schema.Visibility, n int) *ent.UserUpdateOne {
	switch v {
	case schema.Public:
		author.AddPublicPostCount(n)
	case schema.Followers:
		author.AddFollowersPostCount(n)
	case schema.Mutuals:
		author.AddMutualsPostCount(n)
	}
	return author.AddPostCount(n)
}

// CountNewPost returns the assignments, in an update of the author's row, that count a new post.
// visibility is an SQL expression.
func CountNewPost(visibility string) string {
	count := func(column string, v schema.Visibility) string {
		return fmt.Sprintf(", %[1]s = %[1]s + CASE %[2]s WHEN '%[3]s' THEN 1 ELSE 0 END", column, visibility, v)
	}
	return "post_count = post_count + 1" + count("public_post_count", schema.Public) +
		count("followers_post_count", schema.Followers) + count("mutuals_post_count", schema.Mutuals)
}

// Counts holds how many posts an author gains, by counter, and the id of the newest one.
type Counts struct {
	Author    int64 `json:"author"`
	All       int   `json:"total"`
	Public    int   `json:"public"`
	Followers int   `json:"followers"`
	Mutuals   int   `json:"mutuals"`
	Last      int64 `json:"last"`
}

// CountColumns lists the columns, with their types, of a table r of Counts.
var CountColumns = []string{"author bigint", "total int", "public int", "followers int", "mutuals int", "last bigint"}

// AddCounts is the assignments, in an update of users, that add the author's row of a table r to
// the author's counters. CountColumns lists the columns of r.
const AddCounts = "post_count = post_count + r.total, public_post_count = public_post_count + r.public, " +
	"followers_post_count = followers_post_count + r.followers, mutuals_post_count = mutuals_post_count + r.mutuals, " +
	"last_post_id = CASE WHEN r.last > last_post_id THEN r.last ELSE last_post_id END"

// CountNewPosts returns the Counts of each author of the new posts.
func CountNewPosts(posts []*ent.Post) []*Counts {
	byAuthor := map[int64]*Counts{}
	var list []*Counts
	for _, p := range posts {
		c := byAuthor[p.AuthorID]
		if c == nil {
			c = &Counts{Author: p.AuthorID}
			byAuthor[p.AuthorID] = c
			list = append(list, c)
		}
		c.All++
		c.Last = max(c.Last, p.ID)
		switch p.Visibility {
		case schema.Public:
			c.Public++
		case schema.Followers:
			c.Followers++
		case schema.Mutuals:
			c.Mutuals++
		}
	}
	return list
}

// Widens reports whether a change from this visibility may give the post to followers who did not
// have it. from is empty for a new post.
func Widens(from schema.Visibility) bool { return from != schema.Public && from != schema.Followers }

// Narrows reports whether a change to this visibility hides a post from followers.
func Narrows(to schema.Visibility) bool {
	return to == schema.Private || to == schema.Mutuals || to.IsHidden()
}
