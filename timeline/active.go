package timeline

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Touch says that the user is reading: Deliver pushes to the inbox, and the
// inbox is kept, for at least ActiveFor from now. If the user was not active,
// the inbox is dropped first, as posts may have been skipped: therefore Touch
// returns before the inbox is read.
//
// Cost: one round trip of two scripts, O(log active users / 16); two more for
// a user who was not active.
func (s *Store) Touch(ctx context.Context, user int64) error {
	_, err := s.Visit(ctx, user)
	return err
}

// Visit is Touch, and tells where the journal of the inbox stands: the zero
// Position when the inbox is Missing.
//
// Cost: as Touch.
func (s *Store) Visit(ctx context.Context, user int64) (Position, error) {
	at, _, err := s.visit(ctx, user)
	return at, err
}

// VisitPage is Visit and then Page in one: a part of the inbox that is Missing
// when the position is zero.
//
// Cost: as Touch, and O(log size + Limit).
func (s *Store) VisitPage(ctx context.Context, user int64, r Range) (at Position, p Part, err error) {
	args, err := r.args()
	if err != nil {
		return at, p, wrap(err, "page of %s", Inbox(user))
	}
	at, page, err := s.visit(ctx, user, call{pageScript, Inbox(user).keys(), args})
	// What was read before the user was found to be active was pushed to as well.
	if err == nil && at != (Position{}) {
		p, err = part(page)
	}
	return at, p, wrap(err, "page of %s", Inbox(user))
}

// visit is Visit, and returns what one more script answers that runs after the
// journal's position was read.
func (s *Store) visit(ctx context.Context, user int64, more ...call) (at Position, answer *redis.Cmd, err error) {
	k, shard, member := Inbox(user), activeKey(shardOf(user)), formatID(user)
	now := s.nowMillis()
	deadline := s.deadline(now)
	done, err := s.run(ctx, append([]call{
		{activateScript, []string{shard}, []any{member, now, deadline}},
		{extendScript, k.keys(), []any{s.life(k), s.setLife(k)}},
	}, more...)...)
	if err != nil {
		return at, nil, wrap(err, "touch user %d", user)
	}
	wasActive, err := done[0].Bool()
	if err != nil {
		return at, nil, wrap(err, "touch user %d", user)
	}
	if wasActive {
		at, _, err := position(done[1], 2)
		return at, done[len(done)-1], wrap(err, "touch user %d", user)
	}
	// Not in one pipeline: were the user active before the inbox is gone, an
	// inbox with a hole would pass for complete.
	if err := s.Drop(ctx, k); err != nil {
		return at, nil, wrap(err, "touch user %d", user)
	}
	err = s.rdb.ZAdd(ctx, shard, redis.Z{Score: float64(deadline), Member: member}).Err()
	return at, nil, wrap(err, "touch user %d", user)
}

// Active tells of each user whether Deliver would push to them.
//
// Cost: one round trip of at most 16 ZMSCORE, O(users). The 16 keys are spread
// over the nodes of a cluster. Meant for some thousand users a call.
func (s *Store) Active(ctx context.Context, users []int64) ([]bool, error) {
	active := make([]bool, len(users))
	if len(users) == 0 {
		return active, nil
	}
	var members [shards][]string
	var at [shards][]int // position in users of each member
	for i, user := range users {
		n := shardOf(user)
		members[n] = append(members[n], formatID(user))
		at[n] = append(at[n], i)
	}
	now := float64(s.nowMillis())
	var deadlines [shards]*redis.FloatSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range shards {
			if len(members[n]) > 0 {
				deadlines[n] = p.ZMScore(ctx, activeKey(n), members[n]...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "look up %d users", len(users))
	}
	for n := range shards {
		for j, i := range at[n] {
			active[i] = deadlines[n].Val()[j] > now
		}
	}
	return active, nil
}

// ActiveCount is how many users are active, or were within the last sweep.
//
// Cost: one round trip of 16 ZCARD.
func (s *Store) ActiveCount(ctx context.Context) (int, error) {
	var counts [shards]*redis.IntCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range shards {
			counts[n] = p.ZCard(ctx, activeKey(n))
		}
		return nil
	})
	total := 0
	for _, c := range counts {
		total += int(c.Val())
	}
	return total, wrap(err, "count active users")
}

// ActiveUsers is every user who is active at this moment, in ascending order.
// Who becomes active later reads SQL later, and so misses no post that was
// committed before the call.
//
// Cost: as Recent, at a third of it.
func (s *Store) ActiveUsers(ctx context.Context) ([]int64, error) {
	now := strconv.FormatInt(s.nowMillis(), 10)
	var found [shards]*redis.StringSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range shards {
			found[n] = p.ZRangeByScore(ctx, activeKey(n), &redis.ZRangeBy{Min: "(" + now, Max: "+inf"})
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "list active users")
	}
	total := 0
	for _, cmd := range found {
		total += len(cmd.Val())
	}
	users := make([]int64, 0, total)
	for _, cmd := range found {
		for _, member := range cmd.Val() {
			user, err := parseID(member)
			if err != nil {
				return nil, wrap(err, "list active users")
			}
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return users, nil
}

// Activity is an active user and until when, in Unix milliseconds: who read
// last is active longest.
type Activity struct{ User, Until int64 }

// Recent is every user who is active at this moment, the most recently active
// first. Who becomes active later reads SQL later, and so misses no post that
// was committed before the call.
//
// Cost: one round trip, O(active users) in time and memory; Redis is busy with
// a sixteenth of it at a time.
func (s *Store) Recent(ctx context.Context) ([]Activity, error) {
	now := strconv.FormatInt(s.nowMillis(), 10)
	var found [shards]*redis.ZSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range shards {
			found[n] = p.ZRangeByScoreWithScores(ctx, activeKey(n), &redis.ZRangeBy{Min: "(" + now, Max: "+inf"})
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "list active users")
	}
	var list []Activity
	for _, cmd := range found {
		for _, z := range cmd.Val() {
			user, err := parseID(z.Member)
			if err != nil {
				return nil, wrap(err, "list active users")
			}
			list = append(list, Activity{User: user, Until: int64(z.Score)})
		}
	}
	slices.SortFunc(list, func(a, b Activity) int {
		return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(a.User, b.User))
	})
	return list, nil
}
