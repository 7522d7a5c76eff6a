package visibility

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/like"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// This file turns the table of edges into SQL. Statements about one viewer and many authors, and
// about one author and many viewers, get their flags from lookUps: one scalar subquery an edge, in
// each row. Statements about many pairs get theirs from relationsAmong: one index range an edge.

// edgeBits is the number of bits for the flags of edges. A user's id, which has 53 bits, and these
// flags fit into one bigint.
const edgeBits = 10

// Flags that are read with a post, beside the relation.
const (
	liked      Relation = 1 << (edgeBits + 6 + iota)
	likesKnown          // whether the viewer likes the post was read
	known               // all other flags were read
	wordless            // neither the text nor the words that the viewer mutes were read
)

// fieldAuthor is the column of a post's author.
const fieldAuthor = "author_id"

// columnFlags names the additional column in a query of posts for a viewer.
const columnFlags = "for_viewer"

// byVisibility reports whether the edge matters only for posts with some visibilities.
func (e edge) byVisibility() bool { return e.hides|e.shows == 0 }

// visibilities returns the SQL list of the visibilities that need the edge.
func (e edge) visibilities() string {
	var list []string
	for _, r := range readers {
		if r.needs.Has(e.flag) {
			list = append(list, "'"+string(r.visibility)+"'")
		}
	}
	return strings.Join(list, ", ")
}

// ofRule returns the edges that the rule needs.
func ofRule() (list []edge) {
	for _, e := range edges {
		if !e.byVisibility() || e.visibilities() != "" {
			list = append(list, e)
		}
	}
	return list
}

// ofFollower returns the edges that the rule needs for a viewer who follows the author.
func ofFollower() []edge {
	return slices.DeleteFunc(ofRule(), func(e edge) bool { return e.flag == Following || e.endsFollow })
}

// look returns the SQL expression of the edge's flag, or 0 if no row connects the two. It is a
// scalar subquery: for an EXISTS, PostgreSQL may build a hash of all the viewer's rows, or of the
// whole table.
func (e edge) look(viewer, other string) string {
	return fmt.Sprintf("coalesce((SELECT %d FROM %s r WHERE r.%s = %s AND r.%s = %s), 0)", e.flag, e.table, e.viewer, viewer, e.other, other)
}

// anyOf returns the SQL condition that any row has the value in the column. The database checks it
// once per statement if the value is a parameter.
func (e edge) anyOf(column, value string) string {
	return fmt.Sprintf("EXISTS (SELECT 1 FROM %s a WHERE a.%s = %s)", e.table, column, value)
}

// lookUps returns the SQL expression of the flags of a viewer and an author, which are SQL
// expressions. only returns the SQL condition under which an edge is looked up; an empty condition means always.
func lookUps(list []edge, viewer, author string, only func(edge) string) string {
	if len(list) == 0 {
		return "0"
	}
	flags := make([]string, len(list))
	for i, e := range list {
		flags[i] = e.look(viewer, author)
		if condition := only(e); condition != "" {
			flags[i] = "CASE WHEN " + condition + " THEN " + flags[i] + " ELSE 0 END"
		}
	}
	return strings.Join(flags, " + ")
}

// flagsFor returns the SQL expression of the flags of a viewer and a post. post is an alias of the
// table of posts, and viewer is the parameter. It looks up only what the rule needs. An edge that
// matters only for some visibilities is looked up for their posts. A viewer who mutes nobody, or has
// no block with anybody, needs no look-up a post; the database checks that once per statement. The
// flags that only replies and reposts have are added by bases.addTo.
//
// Cost: four look-ups a statement. One index look-up a post, and one more with likes; one more a
// post for each of mutes, blocks and being blocked that the viewer has any of, and one while
// anybody is hidden.
func flagsFor(viewer, post string, likes bool) string {
	flags := relationTo(viewer, post)
	if likes {
		likesOf := edge{flag: liked, table: like.Table, viewer: like.FieldUserID, other: like.FieldPostID}
		flags += fmt.Sprintf(" + %d + %s", likesKnown, likesOf.look(viewer, post+".id"))
	}
	return flags
}

// relationTo is flagsFor without likes, which inboxes do not need.
func relationTo(viewer, post string) string {
	return authorHidden(post) + " + " + lookUps(ofRule(), viewer, post+"."+fieldAuthor, func(e edge) string {
		if e.hides != 0 {
			return e.anyOf(e.viewer, viewer)
		}
		return e.forPost(post)
	})
}

// flagsForMany is flagsFor, without likes and with the flags of bases, for statements whose rows are
// the viewers. It does not check edges with anyOf: PostgreSQL may build a hash of the whole table for
// each.
func flagsForMany(viewer, post string) string {
	return flagsWhere(viewer, post, func(e edge) string { return e.forPost(post) })
}

// flagsForChange is flagsForMany with all edges of the rule, for a post whose visibility changes.
func flagsForChange(viewer, post string) string {
	return flagsWhere(viewer, post, func(edge) string { return "" })
}

func flagsWhere(viewer, post string, only func(edge) string) string {
	return authorHidden(post) + " + " + lookUps(ofRule(), viewer, post+"."+fieldAuthor, only) + " + " + dependsOn(viewer, post)
}

// forPost returns the SQL condition that the post has a visibility for which the edge matters, or
// "" if the edge matters for all.
func (e edge) forPost(post string) string {
	if !e.byVisibility() {
		return ""
	}
	return post + ".visibility IN (" + e.visibilities() + ")"
}

// authorHidden returns the SQL expression of the flags known and Hidden of a post.
func authorHidden(post string) string {
	return fmt.Sprintf("%d + CASE WHEN EXISTS (SELECT 1 FROM %[2]s) THEN coalesce((SELECT %[3]d FROM %[2]s r WHERE r.%[4]s = %[5]s.%[6]s), 0) ELSE 0 END",
		known, hiddenuser.Table, Hidden, hiddenuser.FieldID, post, fieldAuthor)
}

// flagsOf returns the flags that were read with a post. It fails if the post was not read for a
// viewer.
func flagsOf(p *ent.Post) (Relation, error) {
	flags := Relation(p.ForViewer)
	if flags&known == 0 {
		return 0, fmt.Errorf("post %d was not read for a viewer", p.ID)
	}
	return flags, nil
}

// Liked reports whether the viewer likes the post, which must have been read for the viewer. known
// is false if the post was not read for a viewer, or was read without likes.
func Liked(p *ent.Post) (likes, known bool) {
	flags := Relation(p.ForViewer)
	return flags.Has(liked), flags.Has(likesKnown)
}

// Relations returns the viewer's relation to each of the others. An anonymous
// viewer has no relation to anybody, and nobody has one to themselves.
//
// Cost: one query with seven index look-ups a user: all six edges, and hidden users.
func (r *Reader) Relations(ctx context.Context, viewer int64, others []int64) (map[int64]Relation, error) {
	relations := map[int64]Relation{}
	ids := make([]int64, 0, len(others))
	for _, id := range others {
		if _, twice := relations[id]; !twice && id != viewer {
			relations[id] = 0
			ids = append(ids, id)
		}
	}
	if viewer == 0 || len(ids) == 0 {
		return relations, nil
	}
	found, err := r.related(ctx, r.db, r.relations, viewer, ids)
	for _, id := range ids {
		relations[id] = found.of(viewer, id)
	}
	return relations, err
}

// pair is a viewer and another user. The viewer 0 stands for everybody.
type pair struct{ viewer, other int64 }

// relations are the relations of pairs.
type relations map[pair]Relation

func (r relations) of(viewer, other int64) Relation {
	return r[pair{viewer, other}] | r[pair{0, other}]
}

// relationsAmong returns the query of the flags of the edges, and of hidden users. viewers is the
// SQL condition of the viewers, whose parameter is $1. The others are $2.
func relationsAmong(of, viewers string, list []edge) string {
	others := rows.In(of, "$2", "bigint")
	query := fmt.Sprintf("SELECT %d, 0, %s FROM %s WHERE %[2]s %[4]s", Hidden, hiddenuser.FieldID, hiddenuser.Table, others)
	for _, e := range list {
		query += fmt.Sprintf(" UNION ALL SELECT %d, %s, %s FROM %s WHERE %[2]s %[5]s AND %[3]s %[6]s", e.flag, e.viewer, e.other, e.table, viewers, others)
	}
	return query
}

// related reads the result of relationsAmong.
func (r *Reader) related(ctx context.Context, in querier, query string, viewers any, others []int64) (relations, error) {
	list, err := in.QueryContext(ctx, query, viewers, rows.List(r.dialect, others))
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	defer list.Close()
	found := relations{}
	for list.Next() {
		var flag Relation
		var of pair
		if err := list.Scan(&flag, &of.viewer, &of.other); err != nil {
			return nil, fmt.Errorf("read relations: %w", err)
		}
		found[of] |= flag
	}
	return found, errs.Wrap(list.Err(), "read relations")
}
