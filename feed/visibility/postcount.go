package visibility

import (
	"fmt"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/internal/pipeline"
)

// PostCount returns how many of the author's posts, without replies and reposts, a viewer with the relation r to the author may
// see. A nil r means an anonymous viewer. It costs no query.
func PostCount(viewer int64, r *Relation, author *ent.User) int {
	if r == nil {
		r = new(Relation)
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

// AddToPostCount adds n to the author's counters of posts with the visibility. The counters count no
// replies and reposts, because the visibility of these depends on other posts.
// Private posts, and posts that a moderator hid, have no counter of their own: their number is the
// total minus the other counters.
func AddToPostCount(author *ent.UserUpdateOne, p *ent.Post, v schema.Visibility, n int) *ent.UserUpdateOne {
	if DependsOnOthers(p) {
		return author
	}
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

// countNewPost has two statements for a new post $2 of author $1. The first one counts it, and the
// second one is for posts that are not counted. The post has the visibility $3 or, if that is
// empty, the author's default.
var countNewPost = func() [2]string {
	const visibility = "coalesce(nullif(CAST($3 AS text), ''), default_visibility)"
	count := func(column string, v schema.Visibility) string {
		return fmt.Sprintf(", %[1]s = %[1]s + CASE %[2]s WHEN '%[3]s' THEN 1 ELSE 0 END", column, visibility, v)
	}
	const last = "last_post_id = CASE WHEN CAST($2 AS bigint) > last_post_id THEN CAST($2 AS bigint) ELSE last_post_id END" +
		" WHERE id = $1 AND NOT hidden RETURNING id, follower_count, issuer, external_id, " + visibility
	return [2]string{"UPDATE users SET post_count = post_count + 1" +
		count("public_post_count", schema.Public) + count("followers_post_count", schema.Followers) + count("mutuals_post_count", schema.Mutuals) +
		", " + last, "UPDATE users SET " + last}
}()

// CountNewPost adds a statement to w that locks the author of a new post and counts the post, unless
// it is a reply or a repost. If the post has no visibility, it gets the author's default. Sending w sets the author's id,
// follower count and external id. They stay zero if the author is hidden or does not exist.
func CountNewPost(w *pipeline.Pipeline, p *ent.Post, author *ent.User) {
	statement := countNewPost[0]
	if DependsOnOthers(p) {
		statement = countNewPost[1]
	}
	w.QueryRow([]any{&author.ID, &author.FollowerCount, &author.Issuer, &author.ExternalID, &p.Visibility},
		statement, p.AuthorID, p.ID, string(p.Visibility))
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
		c.Last = max(c.Last, p.ID)
		if DependsOnOthers(p) {
			continue
		}
		c.All++
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
