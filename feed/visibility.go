package feed

import (
	"context"
	"errors"
	"fmt"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/like"
	"tideline/ent/mute"
	"tideline/ent/post"
	"tideline/ent/schema"
)

// Relation is how a viewer and another user stand to each other.
type Relation struct {
	Following  bool // the viewer follows the other
	FollowedBy bool // the other follows the viewer
	Blocking   bool // the viewer blocks the other
	BlockedBy  bool // the other blocks the viewer
	Muting     bool // the viewer mutes the other
	Requested  bool // the viewer asked to follow and waits for the answer
}

// Mutual reports whether both follow each other: friends.
func (r Relation) Mutual() bool { return r.Following && r.FollowedBy }

// Surface is where a post is about to be shown. A post may be good for its
// author's profile and yet not belong into the viewer's home timeline.
type Surface uint8

const (
	Direct       Surface = iota // by id, in a profile, as a target of a like
	HomeTimeline                // in the home timeline or its live events
)

// mayShow decides whether a viewer who stands to the author as r says may be
// shown p at door d. It is the one place that compares visibility: every
// page, look-up and live event passes it with relations read from SQL after
// the request began, so what feeds or queues hold can at worst hide a post.
func mayShow(d Surface, viewer int64, r Relation, p *ent.Post) bool {
	if viewer != 0 && p.AuthorID == viewer {
		return true
	}
	if r.Blocking || r.BlockedBy {
		return false
	}
	if d == HomeTimeline && (!r.Following || r.Muting) {
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

// PostCount is how many of u's posts a viewer may see who stands to u as r says;
// an anonymous viewer has no relation. It costs no query.
func PostCount(v Viewer, r *Relation, u *ent.User) int {
	if r == nil {
		r = &Relation{}
	}
	count := map[schema.Visibility]int{
		schema.Public: u.PublicPostCount, schema.Followers: u.FollowersPostCount, schema.Mutuals: u.MutualsPostCount,
		schema.Private: u.PostCount - u.PublicPostCount - u.FollowersPostCount - u.MutualsPostCount,
	}
	n := 0
	for _, visibility := range visibleTo(Direct, v.ID, *r, u.ID) {
		n += count[visibility]
	}
	return n
}

// visibleTo is what posts of the author mayShow would show, by their visibility:
// what SQL need not skip one by one where much is hidden. It filters before, and
// never decides: its relation is older than what is read by it, and each post
// still passes mayShow, with the relation that was read with the post.
func visibleTo(d Surface, viewer int64, r Relation, author int64) []schema.Visibility {
	var visible []schema.Visibility
	for _, name := range schema.Visibility("").Values() {
		v := schema.Visibility(name)
		if mayShow(d, viewer, r, &ent.Post{AuthorID: author, Visibility: v}) {
			visible = append(visible, v)
		}
	}
	return visible
}

// shown keeps those of the posts that the viewer may be shown at door d, in
// order. The posts have been read by posts for this viewer. It costs no query.
func shown(d Surface, viewer int64, posts []*ent.Post) ([]*ent.Post, error) {
	kept := make([]*ent.Post, 0, len(posts))
	for _, p := range posts {
		r, err := relationWith(viewer, p)
		if err != nil {
			return nil, err
		}
		if mayShow(d, viewer, r, p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// columnRelation is what a post that was read for a viewer has beside its own
// columns: the viewer's relation to its author and to it, a bit for each flag.
const columnRelation = "relation"

// posts reads posts for a viewer: each together with how the viewer stands to its
// author at that moment, and whether the viewer likes it, which costs six index
// look-ups a post.
func (f *Feed) posts(viewer int64) *ent.PostQuery {
	q := f.db.Post.Query()
	if viewer != 0 {
		q.Modify(func(s *sql.Selector) {
			s.AppendSelectExprAs(relationTo(viewer, s.C(post.FieldID), s.C(post.FieldAuthorID)), columnRelation)
		})
	}
	return q
}

func relationTo(viewer int64, post, author string) sql.Querier {
	return sql.ExprFunc(func(b *sql.Builder) {
		for i, e := range []struct {
			flag                    int
			table, mine, theirs, of string
		}{
			{flagFollowing, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID, author},
			{flagFollowedBy, follow.Table, follow.FieldFolloweeID, follow.FieldFollowerID, author},
			{flagBlocking, block.Table, block.FieldBlockerID, block.FieldBlockedID, author},
			{flagBlockedBy, block.Table, block.FieldBlockedID, block.FieldBlockerID, author},
			{flagMuting, mute.Table, mute.FieldMuterID, mute.FieldMutedID, author},
			{flagLiked, like.Table, like.FieldUserID, like.FieldPostID, post},
		} {
			if i > 0 {
				b.WriteString(" + ")
			}
			// A scalar: of an EXISTS, PostgreSQL may make a hash of all that the viewer has.
			b.WriteString(fmt.Sprintf("coalesce((SELECT %d FROM %s r WHERE r.%s = ", 1<<e.flag, e.table, e.mine)).Arg(viewer).
				WriteString(fmt.Sprintf(" AND r.%s = %s), 0)", e.theirs, e.of))
		}
	})
}

// relationWith is how the viewer, for whom posts read the post, stands to its author.
func relationWith(viewer int64, p *ent.Post) (r Relation, err error) {
	if viewer == 0 {
		return r, nil
	}
	flags, err := flagsOf(p)
	if err != nil {
		return r, err
	}
	for flag := range flagRequested {
		if flags&(1<<flag) != 0 {
			r.set(flag)
		}
	}
	return r, nil
}

// flagsOf is what posts read of a post beside its columns, for whoever it was.
func flagsOf(p *ent.Post) (flags int64, err error) {
	value, err := p.Value(columnRelation)
	flags, ok := value.(int64)
	if err != nil || !ok {
		return 0, fmt.Errorf("relation to post %d: %w", p.ID, errors.Join(err, fmt.Errorf("got %T", value)))
	}
	return flags, nil
}

// The flags of a Relation, and of one to a post, as queries return them.
const (
	flagFollowing = iota
	flagFollowedBy
	flagBlocking
	flagBlockedBy
	flagMuting
	flagRequested
	flagLiked
)

func (r *Relation) set(flag int) {
	switch flag {
	case flagFollowing:
		r.Following = true
	case flagFollowedBy:
		r.FollowedBy = true
	case flagBlocking:
		r.Blocking = true
	case flagBlockedBy:
		r.BlockedBy = true
	case flagMuting:
		r.Muting = true
	case flagRequested:
		r.Requested = true
	}
}

// relations reads how viewer stands to each of the others, in one query of six
// index look-ups. An anonymous viewer stands in no relation to anybody.
func (f *Feed) relations(ctx context.Context, viewer int64, others []int64) (map[int64]Relation, error) {
	found := map[int64]Relation{}
	ids := make([]any, 0, len(others))
	for _, id := range others {
		if _, twice := found[id]; !twice && id != viewer {
			found[id] = Relation{}
			ids = append(ids, id)
		}
	}
	if viewer == 0 || len(ids) == 0 {
		return found, nil
	}
	edges := func(flag int, table, mine, theirs string) *sql.Selector {
		t := sql.Dialect(f.dialect).Select().From(sql.Table(table))
		return t.SelectExpr(sql.Raw(fmt.Sprint(flag)), sql.Raw(t.C(theirs))).
			Where(sql.And(sql.EQ(t.C(mine), viewer), sql.In(t.C(theirs), ids...)))
	}
	query, args := edges(flagFollowing, follow.Table, follow.FieldFollowerID, follow.FieldFolloweeID).
		UnionAll(edges(flagFollowedBy, follow.Table, follow.FieldFolloweeID, follow.FieldFollowerID)).
		UnionAll(edges(flagBlocking, block.Table, block.FieldBlockerID, block.FieldBlockedID)).
		UnionAll(edges(flagBlockedBy, block.Table, block.FieldBlockedID, block.FieldBlockerID)).
		UnionAll(edges(flagMuting, mute.Table, mute.FieldMuterID, mute.FieldMutedID)).
		UnionAll(edges(flagRequested, followrequest.Table, followrequest.FieldRequesterID, followrequest.FieldTargetID)).
		Query()
	rows, err := f.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var flag int
		var other int64
		if err := rows.Scan(&flag, &other); err != nil {
			return nil, fmt.Errorf("read relations: %w", err)
		}
		r := found[other]
		r.set(flag)
		found[other] = r
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read relations: %w", err)
	}
	return found, nil
}

// Relations is how the viewer stands to each of the others, in their order. An
// item is nil for an anonymous viewer and for the viewer's own id it is zero. It
// costs one query, of six index look-ups a user.
func (f *Feed) Relations(ctx context.Context, v Viewer, others []int64) ([]*Relation, error) {
	list := make([]*Relation, len(others))
	if v.ID == 0 {
		return list, nil
	}
	found, err := f.relations(ctx, v.ID, others)
	if err != nil {
		return nil, err
	}
	for i, id := range others {
		r := found[id]
		list[i] = &r
	}
	return list, nil
}
