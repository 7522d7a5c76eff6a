package visibility

import "tideline/ent/schema"

// Close posts are visible to the author's close friends.
const Close schema.Visibility = "CLOSE"

// Avoided is why a post is hidden from a viewer who avoids the author.
const Avoided = "the viewer avoids the author"

// Teach adds two relations to the tables of the rule, until forget is called: close friends, who
// see Close posts and do not learn that they are, and users who see nothing of those they avoid.
func Teach() (forget func()) {
	edgesBefore, readersBefore := edges, readers
	const closeFriend, avoiding = Relation(1 << (edgeBits - 2)), Relation(1 << (edgeBits - 1))
	edges = append(edges[:len(edges):len(edges)],
		edge{flag: closeFriend, table: "close_friends", viewer: "friend_id", other: "author_id", secret: true},
		edge{flag: avoiding, table: "avoided", viewer: "viewer_id", other: "other_id", hides: everywhere, why: Avoided},
	)
	readers = append(readers[:len(readers):len(readers)], readership{Close, closeFriend, "it is for close friends"})
	return func() { edges, readers = edgesBefore, readersBefore }
}
