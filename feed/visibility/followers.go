package visibility

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// Followers reads the followers of authors, with verdicts on the authors' posts.
type Followers struct {
	db      *ent.Client
	dialect string
}

// Follower is a follower of an author, with verdicts on one post.
type Follower struct {
	ID   int64
	Sees bool // the follower's inbox has the post
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

// needed returns the relations to the author that decide who sees a version of the post.
func (c PostChange) needed() Relation {
	needed := neededBy(c.Current) | neededBy(c.Before)
	for _, p := range c.Previous {
		needed |= neededBy(p)
	}
	return needed
}

func neededBy(p *ent.Post) Relation {
	if p == nil {
		return 0
	}
	relation, _ := needs(p.Visibility)
	return relation
}

// Objections are the users who follow an author and do not want the author's posts, because they
// mute the author.
type Objections map[int64]Relation

// Objections returns the objections to the author. Audience can use them instead of a look-up for
// each follower.
//
// Cost: an index range of the users who mute the author.
func (r Followers) Objections(ctx context.Context, author int64) (Objections, error) {
	var each []string
	for _, e := range ofFollower() {
		if e.hides != 0 {
			each = append(each, fmt.Sprintf("SELECT %d, %s FROM %s WHERE %s = $1", e.flag, e.viewer, e.table, e.other))
		}
	}
	found, err := r.db.QueryContext(ctx, strings.Join(each, " UNION ALL "), author)
	if err != nil {
		return nil, fmt.Errorf("read objections: %w", err)
	}
	defer found.Close()
	objections := Objections{}
	for found.Next() {
		var user int64
		var flag Relation
		if err := found.Scan(&flag, &user); err != nil {
			return nil, fmt.Errorf("read objections: %w", err)
		}
		objections[user] |= flag
	}
	return objections, errs.Wrap(found.Err(), "read objections")
}

// Audience returns a page of an author's followers, with verdicts: the newest follows with
// positions below before and above after, at most limit, in any order. It also returns the position
// before which the next page starts, 0 after the last page. Pass before as 0 for the first page.
// objections is the result of Objections. If it is nil, each follower is looked up.
//
// Cost: one query, an index range of the size of the page. One look-up more a follower if objections
// is nil and anybody mutes the author, and one more if the post is or was for friends.
func (r Followers) Audience(ctx context.Context, author int64, c PostChange, objections Objections, before, after int64, limit int) ([]Follower, int64, error) {
	before = cmp.Or(before, math.MaxInt64)
	list, last, err := r.followers(ctx, author, c, objections,
		"follows WHERE followee_id = $1 AND id < $2 AND id > $3 ORDER BY id DESC LIMIT $4", before, after, limit)
	if len(list) < limit {
		last = 0
	}
	return list, last, err
}

// OfMany returns a page of the users who follow any of the authors: the newest follows
// before the given position, at most limit. A follower may appear more than once. Positions are as
// in Audience.
//
// Cost: one query. For one author it reads an index range of the size of the page; for several it
// reads all follows of the authors.
func (r Followers) OfMany(ctx context.Context, authors []int64, before int64, limit int) (users []int64, next int64, err error) {
	before = cmp.Or(before, math.MaxInt64)
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
func (r Followers) Among(ctx context.Context, author *ent.User, c PostChange, users []int64) ([]Follower, error) {
	if most := rowsPerLookUp * len(users); author.FollowerCount <= most {
		list, _, err := r.followers(ctx, author.ID, c, nil, "follows WHERE followee_id = $1 LIMIT $2", most+1)
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
	list, _, err := r.followers(ctx, author.ID, c, nil, from, rows.List(r.dialect, users))
	return list, err
}

// followers reads followers of the author, $1, with everything that the rule needs to know about
// them.
func (r Followers) followers(ctx context.Context, author int64, c PostChange, objections Objections, from string, args ...any) (list []Follower, last int64, err error) {
	needed := c.needed()
	some := slices.DeleteFunc(ofFollower(), func(e edge) bool {
		return e.hides != 0 && objections != nil || e.byVisibility() && !needed.Has(e.flag)
	})
	query := selectFollowers(some, from, func(e edge) string {
		if e.hides != 0 {
			return e.anyOf(e.other, "$1")
		}
		return ""
	})
	page, err := r.db.QueryContext(ctx, query, append([]any{author}, args...)...)
	if err != nil {
		return nil, 0, fmt.Errorf("read followers: %w", err)
	}
	defer page.Close()
	var size int
	var found string
	for page.Next() {
		if err := page.Scan(&last, &size, &found); err != nil {
			return nil, 0, fmt.Errorf("read followers: %w", err)
		}
	}
	if err := page.Err(); err != nil || size == 0 {
		return nil, last, errs.Wrap(err, "read followers")
	}
	list, err = parse(found, size, c, objections)
	return list, last, err
}

// selectFollowers returns the query of the followers in a FROM clause with the table follows: the
// lowest position, their number, and a list for parse. One aggregated row takes a fraction of the
// time of thousands of rows. The conditions are as in lookUps.
func selectFollowers(some []edge, from string, only func(edge) string) string {
	return fmt.Sprintf("SELECT coalesce(min(id), 0) AS last, count(*) AS size, coalesce(string_agg(CAST(follower AS TEXT), ','), '') AS list"+
		" FROM (SELECT follows.id, %d * follows.follower_id + %s AS follower FROM %s) page",
		1<<edgeBits, lookUps(some, "follows.follower_id", "follows.followee_id", only), from)
}

// parse decodes the list of selectFollowers, and decides what each follower sees.
func parse(found string, size int, c PostChange, objections Objections) ([]Follower, error) {
	list := make([]Follower, 0, size)
	for text := range strings.SplitSeq(found, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read followers: %w", err)
		}
		follower := n >> edgeBits
		to := Following | Relation(n&(1<<edgeBits-1)) | objections[follower]
		sees := func(p *ent.Post) bool { return p != nil && mayShow(Inbox, follower, to, p) }
		list = append(list, Follower{
			ID: follower, Sees: sees(c.Current), Saw: slices.ContainsFunc(c.Previous, sees), Had: sees(c.Before),
			Counts: c.Current != nil && mayShow(Direct, follower, to, c.Current),
		})
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
func (r Followers) Audiences(ctx context.Context, of []Followed) ([]Page, error) {
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
	authors, needed, limits := make([]int64, len(of)), make([]int64, len(of)), make([]int, len(of))
	for i, a := range of {
		authors[i], needed[i], limits[i] = a.Author, int64(a.Change.needed()), a.Limit
	}
	page := selectFollowers(ofFollower(), "follows WHERE followee_id = a.author ORDER BY id DESC LIMIT a.room", func(e edge) string {
		if e.byVisibility() {
			return fmt.Sprintf("a.needed & %d <> 0", e.flag)
		}
		return ""
	})
	found, err := r.db.QueryContext(ctx, "SELECT a.n, page.last, page.size, page.list FROM unnest("+rows.Array("$1", "bigint")+", "+rows.Array("$2", "bigint")+", "+
		rows.Array("$3", "bigint")+") WITH ORDINALITY a (author, needed, room, n) CROSS JOIN LATERAL ("+page+") page", authors, needed, limits)
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
	return pages, errs.Wrap(found.Err(), "read audiences")
}
