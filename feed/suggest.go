package feed

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/refusal"
)

// How far the look for users to suggest goes.
const (
	suggestFrom  = 50  // of the viewer's followees, the newest follows
	suggestEach  = 100 // of the followees of each of these, the newest follows
	suggestAmong = 200 // of the users found
	suggestStep  = 50  // of these, as many are read at once
)

// friendsOfFriends are the users whom the followees of the user $1 follow and $1 does not.
// First come those whom most of them follow, then the newest. A followee who is hidden
// counts for nobody. Each look-up is a scalar, so that no plan reads a table from end to end.
func friendsOfFriends(of string) string {
	theirs := fmt.Sprintf("FROM follows g WHERE g.follower_id = mine.id ORDER BY g.id DESC LIMIT %d", suggestEach)
	join := "CROSS JOIN LATERAL (SELECT g.followee_id " + theirs + ") h"
	if of == dialect.SQLite { // has no LATERAL, but takes rows whose id is IN what depends on another row
		join = "CROSS JOIN follows h ON h.id IN (SELECT g.id " + theirs + ")"
	}
	return fmt.Sprintf("SELECT near.id FROM (SELECT h.followee_id AS id, count(*) AS friends"+
		" FROM (SELECT f.followee_id AS id FROM follows f WHERE f.follower_id = $1 ORDER BY f.id DESC LIMIT %d) mine %s"+
		" WHERE (SELECT u.hidden FROM users u WHERE u.id = mine.id) = false GROUP BY h.followee_id) near"+
		" WHERE near.id <> $1 AND (SELECT r.id FROM follows r WHERE r.follower_id = $1 AND r.followee_id = near.id) IS NULL"+
		" ORDER BY near.friends DESC, near.id DESC LIMIT %d", suggestFrom, join, suggestAmong)
}

// popular are some of the users whose posts readers merge, having very many followers, and
// the newest users. First come those who are followed by most, then the newest.
var popular = fmt.Sprintf("SELECT id FROM ("+
	"SELECT id, follower_count FROM (SELECT id, follower_count FROM users WHERE fan_out_mode = '%[1]s' LIMIT %[2]d) merged"+
	" UNION SELECT id, follower_count FROM (SELECT id, follower_count FROM users ORDER BY id DESC LIMIT %[2]d) newest"+
	") u ORDER BY follower_count DESC, id DESC LIMIT 2 * %[2]d", user.FanOutModePULL, suggestAmong)

// Suggestions are users whom the viewer may want to follow: those whom most of the viewer's
// followees follow, and when there are too few, those of the newest users, and of those with
// very many followers, who are followed by most. Nobody is among them whom the viewer
// follows, asks to follow, blocks or mutes, who blocks the viewer, or who is hidden. First is
// as of a page. Errors: Unauthenticated, BadInput.
//
// Cost: an index range of 50 follows, one of 100 for each of them, and a look-up for each user
// found, some milliseconds at the most; then two queries for each 50 users, 200 at the most.
// When there are too few, an index range of 200 users, 200 users of the other kind, and two
// queries for each 50 of these, too.
func (f *finder) Suggestions(ctx context.Context, v account.Viewer, first *int) ([]*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	w, err := paging.Open(paging.Page{First: first}, paging.Users, 0, f.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	found, err := rows.IDs(ctx, f.db, friendsOfFriends(f.cfg.Dialect), v.ID)
	if err != nil {
		return nil, fmt.Errorf("find friends of friends: %w", err)
	}
	users, err := f.suggestible(ctx, v, found, w.N)
	if err != nil || len(users) == w.N {
		return users, err
	}
	others, err := rows.IDs(ctx, f.db, popular)
	if err != nil {
		return nil, fmt.Errorf("find users whom many follow: %w", err)
	}
	more, err := f.suggestible(ctx, v, rows.Without(others, append(found, v.ID)), w.N-len(users))
	return append(users, more...), err
}

// suggestible are the first n of the users who may be suggested to the viewer, in their order.
func (f *finder) suggestible(ctx context.Context, v account.Viewer, among []int64, n int) (users []*ent.User, err error) {
	for len(among) > 0 && len(users) < n {
		step := among[:min(suggestStep, len(among))]
		among = among[len(step):]
		relations, err := f.posts.Relations(ctx, v.ID, step)
		if err != nil {
			return nil, err
		}
		list, err := f.cfg.Directory.Users(ctx, step)
		if err != nil {
			return nil, err
		}
		for i, id := range step {
			r := relations[id]
			if list[i] != nil && !r.Following && !r.Requested && !r.Blocking && !r.BlockedBy && !r.Muting && !r.Hidden {
				users = append(users, list[i])
			}
		}
	}
	return users[:min(n, len(users))], nil
}
