package bulk

import (
	"context"
	"encoding/json"
	"fmt"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/feed/refusal"
	"tideline/internal/errs"
)

// Follow says that one user follows another. Both are external ids.
type Follow struct{ Follower, Followee string }

// Block says that one user blocks another. Both are external ids.
type Block struct{ Blocker, Blocked string }

// pair is a relation as a row of a statement.
type pair struct {
	From int64 `json:"a"` // the user who follows, blocks or likes
	To   int64 `json:"b"` // the other user, or the liked post
}

// Follows creates follows, also of accounts that approve their followers, because the sender has
// decided. It refuses a follow if one of the users blocks the other. Error: BadInput, for more than
// MaxRows.
//
// Cost: eight statements a thousand rows, and a job if something changes. The users are locked as
// by other changes of relations.
func (b *Bulk) Follows(ctx context.Context, issuer string, list []Follow) ([]*Result, error) {
	return take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []Follow, results []*Result) error {
		pairs, err := b.pairs(ctx, tx, issuer, len(list), func(i int) (string, string) { return list[i].Follower, list[i].Followee }, results, hiddenuser.StateSUSPENDED)
		if err != nil {
			return err
		}
		blocks, err := b.among(ctx, tx, "blocks", "blocker_id", "blocked_id", append(reversed(pairs), pairs...))
		if err != nil {
			return err
		}
		follows, err := b.among(ctx, tx, "follows", "follower_id", "followee_id", pairs)
		if err != nil {
			return err
		}
		var fresh []pair
		for i, p := range pairs {
			switch {
			case results[i] != nil:
			case blocks[p] || blocks[pair{p.To, p.From}]:
				results[i] = refused(refusal.New(refusal.BlockedRelation, "One of the two blocks the other."))
			case follows[p]:
				results[i] = &Result{Status: Unchanged}
			default:
				results[i] = &Result{Status: Created}
				follows[p] = true
				fresh = append(fresh, p)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		if err := b.deletePairs(ctx, tx, "follow_requests", "requester_id", "target_id", fresh); err != nil {
			return err
		}
		if err := b.relate(ctx, tx, "follows", "follower_id", "followee_id", fresh); err != nil {
			return err
		}
		if err := b.count(ctx, tx, fresh, 1); err != nil {
			return err
		}
		return b.stale(ctx, tx, both(fresh))
	})
}

// Blocks creates blocks, and ends the follows and requests between the two users, even if a user is
// hidden and may come back. Error: BadInput, for more than MaxRows.
//
// Cost: as Follows.
func (b *Bulk) Blocks(ctx context.Context, issuer string, list []Block) ([]*Result, error) {
	return take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []Block, results []*Result) error {
		pairs, err := b.pairs(ctx, tx, issuer, len(list), func(i int) (string, string) { return list[i].Blocker, list[i].Blocked }, results,
			hiddenuser.StateSUSPENDED, hiddenuser.StateLEAVING)
		if err != nil {
			return err
		}
		blocks, err := b.among(ctx, tx, "blocks", "blocker_id", "blocked_id", pairs)
		if err != nil {
			return err
		}
		var fresh []pair
		for i, p := range pairs {
			if results[i] != nil {
				continue
			}
			results[i] = &Result{Status: Unchanged}
			if !blocks[p] {
				results[i].Status, blocks[p] = Created, true
				fresh = append(fresh, p)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		if err := b.relate(ctx, tx, "blocks", "blocker_id", "blocked_id", fresh); err != nil {
			return err
		}
		between := append(reversed(fresh), fresh...)
		follows, err := b.among(ctx, tx, "follows", "follower_id", "followee_id", between)
		if err != nil {
			return err
		}
		var gone []pair
		for p := range follows {
			gone = append(gone, p)
		}
		if err := b.deletePairs(ctx, tx, "follows", "follower_id", "followee_id", gone); err != nil {
			return err
		}
		if err := b.count(ctx, tx, gone, -1); err != nil {
			return err
		}
		if err := b.deletePairs(ctx, tx, "follow_requests", "requester_id", "target_id", between); err != nil {
			return err
		}
		return b.stale(ctx, tx, both(fresh))
	})
}

// pairs finds and locks the users of n rows. It finds hidden users only in one of the states. It
// stores a result for each refused row, whose pair has no meaning.
func (b *Bulk) pairs(ctx context.Context, tx *ent.Tx, issuer string, n int, row func(int) (from, to string), results []*Result, states ...hiddenuser.State) ([]pair, error) {
	var externalIDs []string
	for i := range n {
		from, to := row(i)
		externalIDs = append(externalIDs, from, to)
	}
	known, err := b.acceptedUsersOf(ctx, tx, issuer, externalIDs, states...)
	if err != nil {
		return nil, err
	}
	pairs := make([]pair, n)
	var users []int64
	for i := range n {
		from, to := row(i)
		a, b := known[from], known[to]
		switch {
		case a == nil || b == nil:
			results[i] = refused(refusal.ErrNoSuchUser)
		case a == b:
			results[i] = refused(refusal.New(refusal.Yourself, "That is the same user."))
		default:
			pairs[i] = pair{a.ID, b.ID}
			users = append(users, a.ID, b.ID)
		}
	}
	return pairs, lock(ctx, tx, sorted(users))
}

// among returns the pairs that exist in the table.
func (b *Bulk) among(ctx context.Context, tx *ent.Tx, table, from, to string, pairs []pair) (map[pair]bool, error) {
	data, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	found, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT t.%[2]s, t.%[3]s FROM %[4]s JOIN %[1]s t ON t.%[2]s = r.a AND t.%[3]s = r.b",
		table, from, to, b.table("a bigint", "b bigint")), string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	defer found.Close()
	has := map[pair]bool{}
	for found.Next() {
		var p pair
		if err := found.Scan(&p.From, &p.To); err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
		has[p] = true
	}
	return has, found.Err()
}

// deletePairs deletes the rows of the pairs.
func (b *Bulk) deletePairs(ctx context.Context, tx *ent.Tx, table, from, to string, pairs []pair) error {
	if len(pairs) == 0 {
		return nil
	}
	err := exec(ctx, tx, fmt.Sprintf("DELETE FROM %[1]s WHERE id IN (SELECT t.id FROM %[4]s JOIN %[1]s t ON t.%[2]s = r.a AND t.%[3]s = r.b)",
		table, from, to, b.table("a bigint", "b bigint")), pairs)
	return errs.Wrap(err, "delete %s", table)
}

// count adds n to the counters of both users of each follow.
func (b *Bulk) count(ctx context.Context, tx *ent.Tx, follows []pair, n int) error {
	type change struct {
		User      int64 `json:"a"`
		Followers int   `json:"b"`
		Following int   `json:"c"`
	}
	byUser := map[int64]*change{}
	of := func(user int64) *change {
		if byUser[user] == nil {
			byUser[user] = &change{User: user}
		}
		return byUser[user]
	}
	for _, p := range follows {
		of(p.From).Following += n
		of(p.To).Followers += n
	}
	changes := make([]*change, 0, len(byUser))
	for _, c := range byUser {
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return nil
	}
	err := exec(ctx, tx, "UPDATE users SET follower_count = follower_count + r.b, following_count = following_count + r.c FROM "+
		b.table("a bigint", "b bigint", "c bigint")+" WHERE users.id = r.a", changes)
	return errs.Wrap(err, "count follows")
}

// reversed returns the pairs with From and To exchanged.
func reversed(pairs []pair) []pair {
	back := make([]pair, len(pairs), 2*len(pairs))
	for i, p := range pairs {
		back[i] = pair{p.To, p.From}
	}
	return back
}

// both returns all users of the pairs.
func both(pairs []pair) []int64 {
	var users []int64
	for _, p := range pairs {
		users = append(users, p.From, p.To)
	}
	return sorted(users)
}
