package visibility

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"entgo.io/ent/dialect"

	"tideline/ent/block"
	"tideline/ent/followrequest"
	"tideline/ent/hiddenuser"
	"tideline/ent/mute"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/internal/errs"
)

// UserState is a digest of what a viewer is shown of a user: the profile, the counts, and the viewer's
// relation to the user. For the viewers themselves it also covers their lists of follow requests, blocks
// and mutes. Two digests of a process are equal if nothing changed.
type UserState uint64

// ViewerUser is a viewer and a user who is shown to the viewer.
type ViewerUser struct{ Viewer, User int64 }

var stateSeed = maphash.MakeSeed()

// mostListed is how many rows of a list of the viewer a UserState counts.
const mostListed = 1000

// userStates returns the query of the texts of UserStates. Its parameters are the pairs: two arrays on
// PostgreSQL, a list of pairs on SQLite.
func userStates(of string) string {
	pairs := "unnest(" + rows.Array("$1", "bigint") + ", " + rows.Array("$2", "bigint") + ") v(viewer, other)"
	if of != dialect.Postgres {
		pairs = "(SELECT a.value ->> 0 AS viewer, a.value ->> 1 AS other FROM json_each($1) a) v"
	}
	var columns []string
	for _, column := range []string{
		user.FieldHandle, user.FieldName, user.FieldBio, user.FieldAvatarURL, user.FieldLinks, user.FieldApprovesFollowers, user.FieldPublicPostCount,
		user.FieldFollowersPostCount, user.FieldMutualsPostCount, user.FieldPostCount,
	} {
		columns = append(columns, "coalesce(CAST(u."+column+" AS TEXT), '')")
	}
	columns = append(columns, "CAST("+rows.Followers.Of(of, "u")+" AS TEXT)", "CAST("+rows.Following.Of(of, "u")+" AS TEXT)")
	told := slices.DeleteFunc(slices.Clone(edges), func(e edge) bool { return e.secret })
	columns = append(columns, "CAST("+lookUps(told, "v.viewer", "v.other", func(edge) string { return "" })+" AS TEXT)")
	var lists []string
	for _, list := range [][2]string{
		{followrequest.Table, followrequest.FieldTargetID}, {followrequest.Table, followrequest.FieldRequesterID}, {block.Table, block.FieldBlockerID}, {mute.Table, mute.FieldMuterID},
	} {
		lists = append(lists, fmt.Sprintf("(SELECT CAST(count(*) AS TEXT) || ' ' || coalesce(CAST(max(l.id) AS TEXT), '') FROM (SELECT r.id FROM %s r WHERE r.%s = v.viewer ORDER BY r.id DESC LIMIT %d) l)",
			list[0], list[1], mostListed))
	}
	columns = append(columns, "CASE WHEN v.viewer = v.other THEN "+strings.Join(lists, " || ' ' || ")+" ELSE '' END")
	return fmt.Sprintf("SELECT v.viewer, v.other, %s FROM %s JOIN users u ON u.id = v.other WHERE NOT EXISTS (SELECT 1 FROM %s h WHERE h.%s = u.id)",
		strings.Join(columns, " || '\n' || "), pairs, hiddenuser.Table, hiddenuser.FieldID)
}

// UserStates returns the states of pairs. A pair whose user does not exist or is hidden has none.
//
// Cost: one query with seven look-ups a pair, and four index ranges of at most a thousand rows for a
// viewer's own state.
func (r *Reader) UserStates(ctx context.Context, pairs []ViewerUser) (map[ViewerUser]UserState, error) {
	viewers, users, list := make([]int64, len(pairs)), make([]int64, len(pairs)), make([][2]int64, len(pairs))
	for i, p := range pairs {
		viewers[i], users[i], list[i] = p.Viewer, p.User, [2]int64{p.Viewer, p.User}
	}
	args := []any{viewers, users}
	if r.dialect != dialect.Postgres {
		text, _ := json.Marshal(list) // numbers always marshal
		args = []any{string(text)}
	}
	found, err := r.db.QueryContext(ctx, r.userStates, args...)
	if err != nil {
		return nil, fmt.Errorf("read the states of users: %w", err)
	}
	defer found.Close()
	states := make(map[ViewerUser]UserState, len(pairs))
	for found.Next() {
		var p ViewerUser
		var text string
		if err := found.Scan(&p.Viewer, &p.User, &text); err != nil {
			return nil, fmt.Errorf("read the states of users: %w", err)
		}
		states[p] = UserState(maphash.String(stateSeed, text))
	}
	return states, errs.Wrap(found.Err(), "read the states of users")
}
