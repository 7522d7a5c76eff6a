package feed

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// Limits of the search for users to suggest.
const (
	suggestFrom  = 50  // the viewer's newest follows that are read
	suggestEach  = 100 // the newest follows that are read of each of these followees
	suggestAmong = 200 // candidates at most
	suggestStep  = 50  // candidates whose relations are read together
)

// unsuggested is the set of relations that exclude a user from the suggestions.
const unsuggested = visibility.Following | visibility.Requested | visibility.Blocking | visibility.BlockedBy | visibility.Muting | visibility.Hidden

// friendsOfFriends returns a query for the users that the followees of user $1 follow and user $1
// does not. Users followed by the most followees come first, then the newest. The follows of a
// hidden followee do not count. Each look-up is a scalar subquery, so that no query plan reads a
// whole table.
func friendsOfFriends(of string) string {
	theirs := fmt.Sprintf("FROM follows g WHERE g.follower_id = mine.id ORDER BY g.id DESC LIMIT %d", suggestEach)
	join := "CROSS JOIN LATERAL (SELECT g.followee_id " + theirs + ") h"
	if of == dialect.SQLite { // SQLite has no LATERAL, but accepts a correlated subquery in IN
		join = "CROSS JOIN follows h ON h.id IN (SELECT g.id " + theirs + ")"
	}
	return fmt.Sprintf("SELECT near.id FROM (SELECT h.followee_id AS id, count(*) AS friends"+
		" FROM (SELECT f.followee_id AS id FROM follows f WHERE f.follower_id = $1 ORDER BY f.id DESC LIMIT %d) mine %s"+
		" WHERE (SELECT u.hidden FROM users u WHERE u.id = mine.id) = false GROUP BY h.followee_id) near"+
		" WHERE near.id <> $1 AND (SELECT r.id FROM follows r WHERE r.follower_id = $1 AND r.followee_id = near.id) IS NULL"+
		" ORDER BY near.friends DESC, near.id DESC LIMIT %d", suggestFrom, join, suggestAmong)
}

// popular selects some users in the pull mode, who have very many followers, and the newest
// users. It orders them by follower count, then newest first.
var popular = fmt.Sprintf("SELECT id FROM ("+
	"SELECT id, follower_count FROM (SELECT id, follower_count FROM users WHERE fan_out_mode = '%[1]s' LIMIT %[2]d) merged"+
	" UNION SELECT id, follower_count FROM (SELECT id, follower_count FROM users ORDER BY id DESC LIMIT %[2]d) newest"+
	") u ORDER BY follower_count DESC, id DESC LIMIT 2 * %[2]d", user.FanOutModePULL, suggestAmong)

// Suggestions returns users that the viewer may want to follow. Users followed by the most of the
// viewer's followees come first. If there are too few, it adds users with very many followers and
// new users, by follower count. It leaves out users that the viewer follows, has asked to follow,
// blocks or mutes, users that block the viewer, and hidden users. The parameter first is the
// length of the list, with the limits of a page. Errors: Unauthenticated, BadInput.
//
// Cost: an index range of 50 follows, one of 100 for each of them, and a look-up for each user
// found, together a few milliseconds at most; then two queries for each 50 users, for at most 200
// users. If there are too few, also an index range of 200 users, 200 users in the pull mode, and
// two queries for each 50 of these.
func (f *Feed) Suggestions(ctx context.Context, v session.Viewer, first *int) ([]*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	w, err := paging.Open(paging.Page{First: first}, paging.Users, 0, f.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	found, err := rows.IDs(ctx, f.cfg.DB, friendsOfFriends(f.cfg.Dialect), v.ID)
	if err != nil {
		return nil, fmt.Errorf("find friends of friends: %w", err)
	}
	users, err := f.suggestible(ctx, v, found, w.N)
	if err != nil || len(users) == w.N {
		return users, err
	}
	others, err := rows.IDs(ctx, f.cfg.DB, popular)
	if err != nil {
		return nil, fmt.Errorf("find users whom many follow: %w", err)
	}
	more, err := f.suggestible(ctx, v, rows.Without(others, append(found, v.ID)), w.N-len(users))
	return append(users, more...), err
}

// suggestible returns the first n of the given users that can be suggested to the viewer, in
// order.
func (f *Feed) suggestible(ctx context.Context, v session.Viewer, among []int64, n int) (users []*ent.User, err error) {
	for len(among) > 0 && len(users) < n {
		step := among[:min(suggestStep, len(among))]
		among = among[len(step):]
		relations, err := f.cfg.Visibility.Relations(ctx, v.ID, step)
		if err != nil {
			return nil, err
		}
		list, err := f.cfg.Directory.Users(ctx, step)
		if err != nil {
			return nil, err
		}
		for i, id := range step {
			if list[i] != nil && relations[id]&unsuggested == 0 {
				users = append(users, list[i])
			}
		}
	}
	return users[:min(n, len(users))], nil
}
