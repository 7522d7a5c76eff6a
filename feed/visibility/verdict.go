package visibility

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// Verdict holds a post, and which of some users may be shown it on a surface.
type Verdict struct {
	Post *ent.Post // nil if there is none
	// Version is the Reader's version when the read began.
	Version int64

	sees map[int64]bool
}

// Sees reports whether the user may be shown the post. The user must be among the users that were
// passed to Judge or JudgeDirect.
func (v *Verdict) Sees(user int64) bool { return v.sees[user] }

// Judge reads a post with all its fields, and decides which of the users may be shown it in the
// home timeline. It reads Likes only for a single user.
//
// Cost: as Posts. For several users two more queries per 20,000 users; see Among.
func (r *Reader) Judge(ctx context.Context, id int64, users []int64) (Verdict, error) {
	v := Verdict{Version: r.Version()}
	viewer, with := int64(0), All&^Likes
	if len(users) == 1 {
		viewer, with = users[0], All
	}
	list, err := r.byKey(ctx, viewer, []int64{id}, with)
	if err != nil || len(list) == 0 {
		return v, err
	}
	v.Post, v.sees = list[0], make(map[int64]bool, len(users))
	if to := Relation(v.Post.ForViewer); viewer != 0 || to.Has(Hidden) {
		v.sees[viewer] = mayShow(Home, viewer, to, v.Post)
		return v, nil
	}
	for chunk := range slices.Chunk(users, 20_000) {
		// Only the author and the author's followers may be shown it.
		followers, err := r.Followers.Among(ctx, v.Post.Edges.Author, PostChange{Current: v.Post}, chunk)
		if err != nil {
			return v, err
		}
		muting, err := r.muters(ctx, mutableText(v.Post), chunk)
		if err != nil {
			return v, err
		}
		base, err := r.basesFor(ctx, []*ent.Post{v.Post}, chunk)
		if err != nil {
			return v, err
		}
		for _, follower := range followers {
			to := base[pair{follower.ID, v.Post.ID}]
			v.sees[follower.ID] = follower.Sees && !muting[follower.ID] && hiddenWithBase(Home, to, v.Post) == "" && unwanted(Home, to, v.Post) == ""
		}
		if slices.Contains(chunk, v.Post.AuthorID) {
			v.sees[v.Post.AuthorID] = v.Post.RepostOf == 0 || hiddenWithBase(Home, base[pair{v.Post.AuthorID, v.Post.ID}], v.Post) == ""
		}
	}
	return v, nil
}

// basesFor returns, for each of the users and each of the posts that is a reply or a repost, the
// flags of dependsOn. The pairs are of a user and a post.
//
// Cost: none if no post is either. Otherwise one query, with the look-ups of dependsOn for each
// pair.
func (r *Reader) basesFor(ctx context.Context, posts []*ent.Post, users []int64) (relations, error) {
	var ids []int64
	for _, p := range posts {
		if p != nil && DependsOnOthers(p) {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) == 0 || len(users) == 0 {
		return nil, nil
	}
	found, err := r.db.QueryContext(ctx, "SELECT u.value, p.id, "+dependsOn("u.value", "p")+" FROM posts p CROSS JOIN "+rows.Each(r.dialect, "$2")+
		" WHERE p.id "+rows.In(r.dialect, "$1", "bigint"), rows.List(r.dialect, ids), rows.List(r.dialect, users))
	if err != nil {
		return nil, fmt.Errorf("read roots and originals: %w", err)
	}
	defer found.Close()
	list := relations{}
	for found.Next() {
		var of pair
		var flags Relation
		if err := found.Scan(&of.viewer, &of.other, &flags); err != nil {
			return nil, fmt.Errorf("read roots and originals: %w", err)
		}
		list[of] = flags
	}
	return list, errs.Wrap(found.Err(), "read roots and originals")
}

// JudgeDirect reads a post without its author, and decides which of the users may be shown it by
// its id.
//
// Cost: as Posts, and one query per 20,000 users. For each user it looks up hidden users and the five
// edges of ofRule, and for a reply or a repost also what dependsOn says.
func (r *Reader) JudgeDirect(ctx context.Context, id int64, users []int64) (Verdict, error) {
	v := Verdict{Version: r.Version()}
	list, err := r.byKey(ctx, 0, []int64{id}, 0)
	if err != nil || len(list) == 0 {
		return v, err
	}
	v.Post, v.sees = list[0], make(map[int64]bool, len(users))
	for chunk := range slices.Chunk(users, 20_000) {
		if err := r.directFor(ctx, v, chunk); err != nil {
			return v, err
		}
	}
	return v, nil
}

// directFor adds to the verdict which of the users may be shown the post by its id.
func (r *Reader) directFor(ctx context.Context, v Verdict, users []int64) error {
	found, err := r.db.QueryContext(ctx, "SELECT u.value, "+flagsForMany("u.value", "p")+" FROM posts p CROSS JOIN "+rows.Each(r.dialect, "$2")+" WHERE p.id = $1",
		v.Post.ID, rows.List(r.dialect, users))
	if err != nil {
		return fmt.Errorf("read relations: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var user int64
		var to Relation
		if err := found.Scan(&user, &to); err != nil {
			return fmt.Errorf("read relations: %w", err)
		}
		v.sees[user] = mayShow(Direct, user, to, v.Post)
	}
	return errs.Wrap(found.Err(), "read relations")
}

const (
	// unreadPosts and unreadPairs bound the memory of one read for many users: the number of posts,
	// and the number of pairs of a viewer and an author.
	unreadPosts = 20_000
	unreadPairs = 500_000
)

// ShownOfMany returns, for each user, the posts of the user's timeline that the user may be shown
// in the home timeline, in the order of the ids, and nil for the other ids. It leaves out users
// whose posts are too many for one call. It returns nil if there are too many pairs of a user and
// an author.
//
// Cost: at most seven queries for up to 20,000 posts.
func (r *Reader) ShownOfMany(ctx context.Context, timelines map[int64][]int64) (map[int64][]*ent.Post, error) {
	posts := map[int64]*ent.Post{}
	var users []int64
	for user, ids := range timelines {
		if len(posts)+len(ids) > unreadPosts {
			continue
		}
		users = append(users, user)
		for _, id := range ids {
			posts[id] = nil
		}
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(posts)), 5000) {
		list, err := r.byKey(ctx, 0, chunk, 0)
		if err != nil {
			return nil, err
		}
		for _, row := range list {
			posts[row.ID] = row
		}
	}
	var related, bases relations
	var muted map[int64]string
	if len(posts) > 0 {
		var err error
		if related, err = r.relatedToFollowees(ctx, users, posts); err != nil || related == nil {
			return nil, err
		}
		if muted, err = r.MutedWords(ctx, users); err != nil {
			return nil, err
		}
		if bases, err = r.basesFor(ctx, slices.Collect(maps.Values(posts)), users); err != nil {
			return nil, err
		}
	}
	shown := make(map[int64][]*ent.Post, len(users))
	for _, user := range users {
		shown[user] = make([]*ent.Post, len(timelines[user]))
		for i, id := range timelines[user] {
			p := posts[id]
			if p == nil {
				continue
			}
			to := related.of(user, p.AuthorID) | bases[pair{user, p.ID}]
			if hasAny(mutableText(p), muted[user]) {
				to |= MutesWord
			}
			if mayShow(Home, user, to, p) {
				shown[user][i] = p
			}
		}
	}
	return shown, nil
}

// relatedToFollowees returns the users' relations to the authors of the posts, as far as the rule
// needs them for followees. It returns nil if there are too many pairs.
func (r *Reader) relatedToFollowees(ctx context.Context, users []int64, posts map[int64]*ent.Post) (relations, error) {
	authors, needed := map[int64]bool{}, Relation(0)
	for _, p := range posts {
		if p != nil {
			authors[p.AuthorID] = true
			needed |= neededBy(p)
		}
	}
	if len(users)*len(authors) > unreadPairs {
		return nil, nil
	}
	list := slices.DeleteFunc(ofRule(), func(e edge) bool { return e.endsFollow || e.byVisibility() && !needed.Has(e.flag) })
	query := relationsAmong(r.dialect, rows.In(r.dialect, "$1", "bigint"), list)
	return r.related(ctx, r.db, query, rows.List(r.dialect, users), slices.Sorted(maps.Keys(authors)))
}
