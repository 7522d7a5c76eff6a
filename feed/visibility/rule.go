// Package visibility decides who may see a post.
//
// The rule is whyHidden in rule.go, the only function that compares visibilities. This package is
// also the only one that reads posts for a viewer, and a post leaves it only after the rule allowed
// it. The viewer's relation to the author is read together with the post, after the request began.
// So a wrong entry in a timeline or a queue can hide a post, but never show one.
//
// # Relations
//
// rule.go has all that the package knows about relations: edges, the table of the SQL tables that
// relate two users, and readers, the table of the relations that each visibility asks for.
// relation.go makes the SQL of these tables, in two directions: the flags of one viewer and many
// authors (pages, pulls), and of one author and many viewers (fan-outs, events). A new relation, or
// a new visibility, is an entry in these tables, and every read obeys it. A new visibility also
// needs a counter in postcount.go and its column in bykey.go.
//
// # Replies and reposts
//
// A reply depends on the root of its conversation, and a repost on its original. Both are shown
// only where the viewer may see that post, too. The flags of the viewer and that post are read
// together with the reply or repost, or right after it, by base.go. Inboxes ignore this, the viewer's HomeReplies and
// the conversations that the viewer mutes, so nothing has to be rebuilt when a root is narrowed, the
// setting changes or a conversation is muted.
package visibility

import (
	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/mute"
	"tideline/ent/schema"
)

// Relation is a set of flags that describe how a viewer and another user are related.
type Relation int64

// The flags that a row in a table sets; see edges. They must fit into edgeBits.
const (
	Following  Relation = 1 << iota // the viewer follows the other
	FollowedBy                      // the other follows the viewer
	Blocking                        // the viewer blocks the other
	BlockedBy                       // the other blocks the viewer
	Muting                          // the viewer mutes the other
	Requested                       // the viewer asked to follow and waits for the answer
)

// The other flags that the rule needs.
const (
	Hidden Relation = 1 << (edgeBits + iota) // nobody sees the other; see ent/schema.HiddenUser
	// MutesWord: the viewer mutes a word in the post. It is set only in a relation that was read
	// with a post, and no query returns it.
	MutesWord
	// FollowsParent: the viewer follows the author of a reply's parent, or is that author.
	FollowsParent
	allReplies // the viewer's HomeReplies is ALL
	noReplies  // the viewer's HomeReplies is NONE
	// mutesConversation: the viewer mutes the conversation of a reply or of a repost's original.
	mutesConversation
)

// Mutual is the relation of two friends, who follow each other.
const Mutual = Following | FollowedBy

// Has reports whether all the flags are set.
func (r Relation) Has(flags Relation) bool { return r&flags == flags }

// Surface is the place where a post is about to be shown. A viewer may be allowed to see a post in
// its author's profile but not in the home timeline.
type Surface uint8

// The surfaces. In the tables of the rule, a Surface is a set of these.
const (
	// Direct: by id, in a conversation, or as the target of a like.
	Direct Surface = 1 << iota
	// OfAuthor: in the list of its author's posts.
	OfAuthor
	// Home: in the home timeline or its live events.
	Home
	// Tagged: in the list of a tag or of the newest public posts, which also have posts by people
	// that the viewer does not follow.
	Tagged
	// Inbox: nobody is shown the post here. It is stored where home timelines are read. The rule is
	// the same as for Home, but ignores muted words and conversations, roots, originals and
	// HomeReplies.
	Inbox

	everywhere = Direct | OfAuthor | Home | Tagged | Inbox
)

// edge is a table in which a row for a viewer and another user sets a flag.
type edge struct {
	flag          Relation
	table         string
	viewer, other string // the columns of the two users

	hides Surface // a row hides the other's posts from the viewer here
	shows Surface // only a row shows the other's posts to the viewer here
	why   string  // why a post is hidden by the row, or by the lack of a row

	// endsFollow: while there is a row, neither user follows the other. So the edge is not looked
	// up for a viewer who follows the author.
	endsFollow bool
	// secret: the viewer must not learn of the row, also not from an event.
	secret bool
}

// edges are the relations between a viewer and another user. whyHidden names the first that hides a
// post.
var edges = []edge{
	{
		flag: Blocking, table: block.Table, viewer: block.FieldBlockerID, other: block.FieldBlockedID,
		hides: everywhere, why: "the viewer blocks the author", endsFollow: true,
	},
	{
		flag: BlockedBy, table: block.Table, viewer: block.FieldBlockedID, other: block.FieldBlockerID,
		hides: everywhere, why: "the author blocks the viewer", endsFollow: true, secret: true,
	},
	{
		flag: Following, table: follow.Table, viewer: follow.FieldFollowerID, other: follow.FieldFolloweeID,
		shows: Home | Inbox, why: "the viewer does not follow the author",
	},
	{flag: FollowedBy, table: follow.Table, viewer: follow.FieldFolloweeID, other: follow.FieldFollowerID},
	{
		flag: Muting, table: mute.Table, viewer: mute.FieldMuterID, other: mute.FieldMutedID,
		hides: Home | Tagged | Inbox, why: "the viewer mutes the author",
	},
	{flag: Requested, table: followrequest.Table, viewer: followrequest.FieldRequesterID, other: followrequest.FieldTargetID},
}

// readership says which relation to the author a viewer needs to see a post with a visibility.
type readership struct {
	visibility schema.Visibility
	needs      Relation
	why        string // why a post is hidden from the others
}

// readers has the visibilities of posts that anybody but the author may see.
var readers = []readership{
	{schema.Public, 0, ""},
	{schema.Followers, Following, "it is for followers"},
	{schema.Mutuals, Mutual, "it is for friends, and the author does not follow the viewer"},
}

// whyHidden is the rule. It returns why a viewer with the relation r to the author may not be shown
// p on the surface, or "" if the viewer may.
func whyHidden(on Surface, viewer int64, r Relation, p *ent.Post) string {
	own := viewer != 0 && p.AuthorID == viewer
	switch {
	case r.Has(Hidden):
		return "the author's account is hidden"
	case p.Visibility == schema.Deleted:
		return "it was deleted"
	case own && p.RepostOf == 0:
		return ""
	}
	if why := hiddenWithBase(on, r, p); why != "" || own {
		return why
	}
	if why := hiddenByEdge(on, on, r); why != "" {
		return why
	}
	if why := unwanted(on, r, p); why != "" {
		return why
	}
	answersViewer := on == Direct && viewer != 0 && p.ParentID != 0 && (p.ParentAuthorID == viewer || r.root().Has(wrote))
	return hiddenByVisibility(r, p.Visibility, answersViewer)
}

// hiddenByEdge returns why posts of a user are hidden: because an edge that hides posts on a surface of
// hides has a row, or an edge that shows posts on a surface of shows has none.
func hiddenByEdge(hides, shows Surface, r Relation) string {
	for i := range edges {
		e := &edges[i]
		if e.hides&hides != 0 && r.Has(e.flag) || e.shows&shows != 0 && !r.Has(e.flag) {
			return e.why
		}
	}
	return ""
}

// unwanted returns why the viewer does not want to see a post in a list, or "".
func unwanted(on Surface, r Relation, p *ent.Post) string {
	switch {
	case r.Has(MutesWord) && on&(Home|Tagged) != 0:
		return "the viewer mutes a word of it"
	case r.Has(mutesConversation) && on&(Home|Tagged) != 0:
		return "it belongs to a conversation that the viewer mutes"
	case p.ParentID == 0 || on != Home:
		return ""
	case r.Has(noReplies):
		return "it is a reply, and the viewer wants none in the home timeline"
	case !r.Has(allReplies) && !r.Has(FollowsParent):
		return "it is a reply to somebody that the viewer does not follow"
	}
	return ""
}

// hiddenByVisibility returns why a post with the visibility is hidden from a viewer with the
// relation r to its author. answersViewer says that the post is a reply in the viewer's
// conversation or to the viewer's post: then every visibility admits the viewer.
func hiddenByVisibility(r Relation, v schema.Visibility, answersViewer bool) string {
	if v.IsHidden() {
		return "a moderator hid it"
	}
	for i := range readers {
		if readers[i].visibility == v && !answersViewer {
			if r.Has(readers[i].needs) {
				return ""
			}
			return readers[i].why
		}
	}
	if answersViewer {
		return ""
	}
	return "it is for the author alone"
}

// mayShow reports whether a viewer with the relation r to the author may be shown p on the surface.
func mayShow(on Surface, viewer int64, r Relation, p *ent.Post) bool {
	return whyHidden(on, viewer, r, p) == ""
}

// needs returns the relation that a viewer needs to see posts with the visibility. others is false
// if nobody but the author sees them.
func needs(v schema.Visibility) (relation Relation, others bool) {
	for _, r := range readers {
		if r.visibility == v {
			return r.needs, true
		}
	}
	return 0, false
}

// visibleTo returns the visibilities of the author's posts that mayShow can allow, so that SQL need
// not skip hidden posts one by one. It is a filter and never a verdict: its relation is older than
// the posts that are read with it. Each post still passes mayShow, with the relation that was read
// with the post.
func visibleTo(on Surface, viewer int64, r Relation, author int64) (visible []schema.Visibility) {
	add := func(v schema.Visibility) {
		for _, v := range []schema.Visibility{v, v.Hidden()} {
			if mayShow(on, viewer, r, &ent.Post{AuthorID: author, Visibility: v}) {
				visible = append(visible, v)
			}
		}
	}
	for _, r := range readers {
		add(r.visibility)
	}
	add(schema.Private)
	return visible
}

// forAllFollowers reports whether followers of the author need no other relation to see posts with
// the visibility.
func forAllFollowers(v schema.Visibility) bool {
	relation, others := needs(v)
	return others && Following.Has(relation)
}

// Widens reports whether a change from this visibility may give the post to followers who did not
// have it. from is empty for a new post.
func Widens(from schema.Visibility) bool { return !forAllFollowers(from) }

// Narrows reports whether a change to this visibility hides a post from followers.
func Narrows(to schema.Visibility) bool {
	return to != "" && to != schema.Deleted && !forAllFollowers(to)
}
