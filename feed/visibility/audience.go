package visibility

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
)

// Follower is a follower of an author, with verdicts on one post.
type Follower struct {
	ID   int64
	Sees bool // the follower's timeline has the post
	Saw  bool // it had the post at some time before
	Had  bool // it had the post right before the change
	// Counts reports whether the receipt counts the follower among those who get the post. A
	// follower who mutes the author counts, too, because a mute concerns only the follower.
	Counts bool
}

// PostChange describes a change of a post. Current is the post after the change, or nil if it is
// gone and in nobody's timeline. Before is the post right before the change, or nil if it is new.
// Previous holds the post as it was at any earlier time.
type PostChange struct {
	Current  *ent.Post
	Before   *ent.Post
	Previous []*ent.Post
}

// Muters returns all users who mute the author. Audience can use the result instead of a look-up
// for each follower.
//
// Cost: an index range of the author's muters.
func (r *Reader) Muters(ctx context.Context, author int64) (map[int64]bool, error) {
	found, err := r.db.QueryContext(ctx, "SELECT muter_id FROM mutes WHERE muted_id = $1", author)
	if err != nil {
		return nil, fmt.Errorf("read muters: %w", err)
	}
	defer found.Close()
	muters := map[int64]bool{}
	for found.Next() {
		var muter int64
		if err := found.Scan(&muter); err != nil {
			return nil, fmt.Errorf("read muters: %w", err)
		}
		muters[muter] = true
	}
	return muters, rows.Wrap("read muters", found.Err())
}

// Audience returns a page of an author's followers, with verdicts: the newest follows with
// positions below before and above after, at most limit, in any order. It also returns the position
// before which the next page starts, 0 after the last page. Pass before as 0 for the first page.
// muters is the result of Muters. If it is nil, each follower is looked up.
//
// Cost: one query, an index range of the size of the page. One look-up more a follower if muters is
// nil and anybody mutes the author, and one more if the post is or was for friends.
func (r *Reader) Audience(ctx context.Context, author int64, c PostChange, muters map[int64]bool, before, after int64, limit int) ([]Follower, int64, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	list, last, err := r.followers(ctx, author, c, muters, limit,
		"follows WHERE followee_id = $1 AND id < $2 AND id > $3 ORDER BY id DESC LIMIT $4", before, after, limit)
	if len(list) < limit {
		last = 0
	}
	return list, last, err
}

// FollowersOfMany returns a page of the users who follow any of the authors: the newest follows
// before the given position, at most limit. A follower may appear more than once. Positions are as
// in Audience.
//
// Cost: one query. For one author it reads an index range of the size of the page; for several it
// reads all follows of the authors.
func (r *Reader) FollowersOfMany(ctx context.Context, authors []int64, before int64, limit int) (users []int64, next int64, err error) {
	if before == 0 {
		before = math.MaxInt64
	}
	of := rows.Among(follow.FieldFolloweeID, authors)
	if len(authors) == 1 {
		of = follow.FolloweeID(authors[0])
	}
	list, err := r.db.Follow.Query().Where(of, follow.IDLT(before)).
		Order(ent.Desc(follow.FieldID)).Limit(limit).Select(follow.FieldID, follow.FieldFollowerID).All(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read followers: %w", err)
	}
	for _, row := range list {
		users = append(users, row.FollowerID)
	}
	if len(list) == limit {
		next = list[limit-1].ID
	}
	return users, next, nil
}

// rowsPerLookUp is how many followers an index range reads in the time of one look-up, if somebody
// mutes the author and each follower is therefore looked up among the mutes, too. Otherwise it
// reads twice as many.
const rowsPerLookUp = 2

// Among is like Audience, but returns only those of the given users who follow the author.
// author.FollowerCount must have been read.
//
// Cost: one query with at most three look-ups a user. If the author has at most twice as many
// followers as there are users, an index range of the followers with at most two look-ups each.
func (r *Reader) Among(ctx context.Context, author *ent.User, c PostChange, users []int64) ([]Follower, error) {
	if most := rowsPerLookUp * len(users); author.FollowerCount <= most {
		list, _, err := r.followers(ctx, author.ID, c, nil, max(author.FollowerCount, 0), "follows WHERE followee_id = $1 LIMIT $2", most+1)
		if err != nil || len(list) <= most { // the count may be out of date
			asked := make(map[int64]struct{}, len(users))
			for _, user := range users {
				asked[user] = struct{}{}
			}
			return slices.DeleteFunc(list, func(f Follower) bool { _, is := asked[f.ID]; return !is }), err
		}
	}
	// The limit keeps PostgreSQL from reading all follows instead of looking them up.
	from := rows.Each(r.dialect, "$2") + " CROSS JOIN LATERAL (SELECT f.* FROM follows f WHERE f.follower_id = u.value AND f.followee_id = $1 LIMIT 1) follows"
	if r.dialect != dialect.Postgres {
		from = "follows WHERE followee_id = $1 AND follower_id " + rows.In(r.dialect, "$2", "bigint")
	}
	list, _, err := r.followers(ctx, author.ID, c, nil, len(users), from, rows.List(r.dialect, users))
	return list, err
}

// followers reads followers of the author, $1, with everything that mayShow needs to know about
// them. Each of them follows the author, so there is no block between the two.
//
// Each look-up is a scalar subquery: for an EXISTS, PostgreSQL builds a hash of the whole table.
func (r *Reader) followers(ctx context.Context, author int64, c PostChange, muters map[int64]bool, room int, from string, args ...any) (list []Follower, last int64, err error) {
	// Whether the author follows back matters only for posts for friends.
	mutual, muting := "0", "0"
	if forFriends(c.Current) || slices.ContainsFunc(c.Previous, forFriends) {
		mutual = "coalesce((SELECT 1 FROM follows b WHERE b.follower_id = follows.followee_id AND b.followee_id = follows.follower_id), 0)"
	}
	if muters == nil {
		// The database checks once per statement whether anybody mutes the author.
		muting = "CASE WHEN EXISTS (SELECT 1 FROM mutes a WHERE a.muted_id = $1) THEN" +
			" coalesce((SELECT 1 FROM mutes m WHERE m.muter_id = follows.follower_id AND m.muted_id = follows.followee_id), 0) ELSE 0 END"
	}
	// One aggregated row takes a fraction of the time of thousands of rows.
	query := "SELECT coalesce(min(id), 0), coalesce(string_agg(CAST(follower AS TEXT), ','), '') FROM (SELECT follows.id, " +
		"4 * follows.follower_id + 2 * " + mutual + " + " + muting + " AS follower FROM " + from + ") page"
	page, err := r.db.QueryContext(ctx, query, append([]any{author}, args...)...)
	if err != nil {
		return nil, 0, fmt.Errorf("read followers: %w", err)
	}
	defer page.Close()
	var found string
	for page.Next() {
		if err := page.Scan(&last, &found); err != nil {
			return nil, 0, fmt.Errorf("read followers: %w", err)
		}
	}
	if err := page.Err(); err != nil || found == "" {
		return nil, last, rows.Wrap("read followers", err)
	}
	list, err = parse(found, room, c, muters)
	return list, last, err
}

// parse decodes the text of the query into followers, and decides what each of them sees.
func parse(found string, room int, c PostChange, muters map[int64]bool) ([]Follower, error) {
	list := make([]Follower, 0, room)
	for text := range strings.SplitSeq(found, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read followers: %w", err)
		}
		follower := n / 4
		to := Relation{Following: true, FollowedBy: n&2 != 0, Muting: n&1 != 0 || muters[follower]}
		sees := func(p *ent.Post) bool { return p != nil && mayShow(Home, follower, to, p) }
		f := Follower{ID: follower, Sees: sees(c.Current), Saw: slices.ContainsFunc(c.Previous, sees), Had: sees(c.Before)}
		to.Muting = false
		f.Counts = sees(c.Current)
		list = append(list, f)
	}
	return list, nil
}

// Followed asks for the first page of an author's followers, at most Limit, with verdicts on a
// post.
type Followed struct {
	Author int64
	Change PostChange
	Limit  int
}

// Page is a result of Audience.
type Page struct {
	Followers []Follower
	Next      int64
}

// Audiences returns the first pages of Audience for several authors, in their order.
//
// Cost: one query with an index range an author and two look-ups a follower. On SQLite one query an
// author.
func (r *Reader) Audiences(ctx context.Context, of []Followed) ([]Page, error) {
	pages := make([]Page, len(of))
	if len(of) == 1 || r.dialect != dialect.Postgres { // one is faster without a list
		for i, a := range of {
			var err error
			if pages[i].Followers, pages[i].Next, err = r.Audience(ctx, a.Author, a.Change, nil, 0, 0, a.Limit); err != nil {
				return nil, err
			}
		}
		return pages, nil
	}
	authors, friends, limits := make([]int64, len(of)), make([]bool, len(of)), make([]int, len(of))
	for i, a := range of {
		authors[i], limits[i], friends[i] = a.Author, a.Limit, forFriends(a.Change.Current) || slices.ContainsFunc(a.Change.Previous, forFriends)
	}
	// Each look-up is a scalar subquery, as in followers.
	found, err := r.db.QueryContext(ctx, `SELECT a.n, page.last, page.size, page.list
		FROM unnest(`+rows.Array("$1", "bigint")+", "+rows.Array("$2", "boolean")+", "+rows.Array("$3", "bigint")+`) WITH ORDINALITY a (author, friends, room, n)
		CROSS JOIN LATERAL (SELECT coalesce(min(id), 0) AS last, count(*) AS size, coalesce(string_agg(CAST(follower AS TEXT), ','), '') AS list
			FROM (SELECT follows.id, 4 * follows.follower_id
				+ CASE WHEN a.friends THEN 2 * coalesce((SELECT 1 FROM follows b WHERE b.follower_id = follows.followee_id AND b.followee_id = follows.follower_id), 0) ELSE 0 END
				+ coalesce((SELECT 1 FROM mutes m WHERE m.muter_id = follows.follower_id AND m.muted_id = follows.followee_id), 0) AS follower
				FROM follows WHERE followee_id = a.author ORDER BY id DESC LIMIT a.room) newest) page`, authors, friends, limits)
	if err != nil {
		return nil, fmt.Errorf("read audiences: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var n, size int
		var last int64
		var list string
		if err := found.Scan(&n, &last, &size, &list); err != nil {
			return nil, fmt.Errorf("read audiences: %w", err)
		}
		if list == "" {
			continue
		}
		if pages[n-1].Followers, err = parse(list, size, of[n-1].Change, nil); err != nil {
			return nil, err
		}
		if size == of[n-1].Limit {
			pages[n-1].Next = last
		}
	}
	return pages, rows.Wrap("read audiences", found.Err())
}

func forFriends(p *ent.Post) bool { return p != nil && p.Visibility == schema.Mutuals }
