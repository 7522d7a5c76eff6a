package visibility

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/hiddenuser"
	"tideline/ent/like"
	"tideline/ent/mute"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
)

// flag is a set of bits that a query returns for a viewer and a user, or for a viewer and a post.
type flag int64

const (
	following flag = 1 << iota
	followedBy
	blocking
	blockedBy
	muting
	requested
	liked
	likesKnown // whether the viewer likes the post was read
	known      // all other flags were read
	hidden     // the user, or the post's author, is hidden from everybody
	mutesWord  // the viewer mutes a word of the post; no query returns it
	wordless   // neither the text nor the words that the viewer mutes were read
)

// edge is a table in which a row for a viewer and another user sets a flag.
type edge struct {
	flag                flag
	table, mine, theirs string
}

// edges are the six relations between a viewer and another user. All except the last one affect who
// may see a post.
var edges = []edge{
	{following, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID},
	{followedBy, follow.Table, follow.FieldFolloweeID, follow.FieldFollowerID},
	{blocking, block.Table, block.FieldBlockerID, block.FieldBlockedID},
	{blockedBy, block.Table, block.FieldBlockedID, block.FieldBlockerID},
	{muting, mute.Table, mute.FieldMuterID, mute.FieldMutedID},
	{requested, followrequest.Table, followrequest.FieldRequesterID, followrequest.FieldTargetID},
}

// likesOf is the edge between a viewer and a post.
var likesOf = edge{liked, like.Table, like.FieldUserID, like.FieldPostID}

// relation turns the flags into a Relation.
func (f flag) relation() Relation {
	return Relation{
		Following: f&following != 0, FollowedBy: f&followedBy != 0, Blocking: f&blocking != 0,
		BlockedBy: f&blockedBy != 0, Muting: f&muting != 0, Requested: f&requested != 0, Hidden: f&hidden != 0,
		MutesWord: f&mutesWord != 0,
	}
}

// columnFlags names the additional column in a query of posts for a viewer.
const columnFlags = "for_viewer"

// flagsFor returns the SQL expression of the flags of a viewer and a post. post is an alias of the
// table of posts, and viewer is the parameter. It looks up only what mayShow needs. Whether the
// author follows the viewer matters only for posts for friends. A viewer who mutes nobody, or has
// no block with anybody, needs no look-up a post; the database checks that once per statement.
//
// Cost: four look-ups a statement. One index look-up a post, and one more with likes; one more a
// post for each of mutes, blocks and being blocked that the viewer has any of, and one while
// anybody is hidden.
func flagsFor(viewer, post string, likes bool) string {
	flags := flagsForAnyone(post)
	for _, e := range edges {
		found := e.look(viewer, post, fieldAuthor)
		switch e.flag {
		case following:
		case followedBy:
			found = fmt.Sprintf("CASE WHEN %s.visibility = '%s' THEN %s ELSE 0 END", post, schema.Mutuals, found)
		case requested:
			continue
		default:
			found = fmt.Sprintf("CASE WHEN EXISTS (SELECT 1 FROM %s a WHERE a.%s = %s) THEN %s ELSE 0 END", e.table, e.mine, viewer, found)
		}
		flags += " + " + found
	}
	if likes {
		flags += fmt.Sprintf(" + %d + %s", likesKnown, likesOf.look(viewer, post, "id"))
	}
	return flags
}

// flagsForMany is flagsFor, without likes, for statements whose rows are the viewers. It does not
// check edges with EXISTS: PostgreSQL may build a hash of the whole table for each.
func flagsForMany(viewer, post string) string {
	flags := flagsForAnyone(post)
	for _, e := range edges {
		if e.flag != requested {
			flags += " + " + e.look(viewer, post, fieldAuthor)
		}
	}
	return flags
}

// look returns the SQL expression of the edge's flag, or 0 if no row connects the viewer with the
// value in the post's column. It is a scalar subquery: for an EXISTS, PostgreSQL may build a hash
// of all the viewer's rows.
func (e edge) look(viewer, post, column string) string {
	return fmt.Sprintf("coalesce((SELECT %d FROM %s r WHERE r.%s = %s AND r.%s = %s.%s), 0)", e.flag, e.table, e.mine, viewer, e.theirs, post, column)
}

// flagsForAnyone is flagsFor for an anonymous viewer: whether the author is hidden.
func flagsForAnyone(post string) string {
	return fmt.Sprintf("%d + CASE WHEN EXISTS (SELECT 1 FROM %[2]s) THEN coalesce((SELECT %[3]d FROM %[2]s r WHERE r.%[4]s = %[5]s.%[6]s), 0) ELSE 0 END",
		known, hiddenuser.Table, hidden, hiddenuser.FieldID, post, fieldAuthor)
}

// fieldAuthor is the column of a post's author.
const fieldAuthor = "author_id"

// flagsOf returns the flags that were read with a post. It fails if the post was not read for a
// viewer.
func flagsOf(p *ent.Post) (flag, error) {
	flags := flag(p.ForViewer)
	if flags&known == 0 {
		return 0, fmt.Errorf("post %d was not read for a viewer", p.ID)
	}
	return flags, nil
}

// Liked reports whether the viewer likes the post, which must have been read for the viewer. known
// is false if the post was not read for a viewer, or was read without likes.
func Liked(p *ent.Post) (likes, known bool) {
	flags := flag(p.ForViewer)
	return flags&liked != 0, flags&likesKnown != 0
}

// Relations returns the viewer's relation to each of the others. An anonymous
// viewer has no relation to anybody, and nobody has one to themselves.
//
// Cost: one query of seven index look-ups a user.
func (r *Reader) Relations(ctx context.Context, viewer int64, others []int64) (map[int64]Relation, error) {
	found := map[int64]Relation{}
	ids := make([]int64, 0, len(others))
	for _, id := range others {
		if _, twice := found[id]; !twice && id != viewer {
			found[id] = Relation{}
			ids = append(ids, id)
		}
	}
	if viewer == 0 || len(ids) == 0 {
		return found, nil
	}
	list, err := r.db.QueryContext(ctx, r.relations, viewer, rows.List(r.dialect, ids))
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	defer list.Close()
	flags := map[int64]flag{}
	for list.Next() {
		var set flag
		var other int64
		if err := list.Scan(&set, &other); err != nil {
			return nil, fmt.Errorf("read relations: %w", err)
		}
		flags[other] |= set
	}
	for other, set := range flags {
		found[other] = set.relation()
	}
	return found, rows.Wrap("read relations", list.Err())
}

// relationsIn returns the query of the flags of edges and of hidden users. Its parameters are the
// viewer and the others.
func relationsIn(of string) string {
	others := rows.In(of, "$2", "bigint")
	query := fmt.Sprintf("SELECT %d, %s FROM %s WHERE %[2]s %[4]s", hidden, hiddenuser.FieldID, hiddenuser.Table, others)
	for _, e := range edges {
		query += fmt.Sprintf(" UNION ALL SELECT %d, %s FROM %s WHERE %s = $1 AND %[2]s %[5]s", e.flag, e.theirs, e.table, e.mine, others)
	}
	return query
}

func (r *Reader) relation(ctx context.Context, viewer, other int64) (Relation, error) {
	found, err := r.Relations(ctx, viewer, []int64{other})
	return found[other], err
}
