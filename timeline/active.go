package timeline

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"tideline/internal/errs"
)

// activeShards is how many keys hold the active users. It is large enough that a dozen masters of a
// cluster share the look-ups of a fan-out, and small enough that a page of followers takes only a
// handful of commands.
const activeShards = 16

// shardOf distributes ids evenly over the shards. The low bits of an id are a sequence number that
// is mostly zero, so a remainder would be uneven. Multiplying by the golden ratio spreads all bits
// into the upper four.
func shardOf(id int64) int { return int(uint64(id) * 0x9E3779B97F4A7C15 >> 60) }

// activeKey returns the key of a shard.
func activeKey(shard int) string { return "tl:{a" + strconv.Itoa(shard) + "}" }

// ActiveUsers reads which users are active, that is, to which users posts are pushed. Each active
// user has a deadline in one of 16 sorted sets. A visit moves it up. The masters of a cluster share
// the look-ups of a fan-out. It is safe for concurrent use.
type ActiveUsers struct {
	scripts
	cfg     Config
	masters *Masters

	mu           sync.Mutex           // guards the field below
	incarnations [activeShards]string // the last known one of each shard
}

// Check reports for each user whether posts are pushed to them.
//
// Cost: a round trip of at most 16 ZMSCORE per 1,000 users, O(users). The 16 keys are spread over
// the nodes of a cluster.
func (u *ActiveUsers) Check(ctx context.Context, users []int64) ([]bool, error) {
	deadlines, err := u.deadlines(ctx, users)
	if err != nil {
		return nil, err
	}
	active := make([]bool, len(users))
	for i, d := range deadlines {
		active[i] = d > 0
	}
	return active, nil
}

// deadlines returns until when each user is active, 0 for users who are not. With an Unreached it
// returns 0 for the users that were not reached.
func (u *ActiveUsers) deadlines(ctx context.Context, users []int64) ([]int64, error) {
	var left unreachedUsers
	until := make([]int64, 0, len(users))
	for chunk := range slices.Chunk(users, batch) {
		var merging sync.Mutex
		var found []int64
		err := left.add(u.masters.forUsers(ctx, chunk, shardKey, func(ctx context.Context, part []int64) error {
			of, err := u.deadlinesOf(ctx, part)
			if err != nil {
				return err
			}
			merging.Lock()
			defer merging.Unlock()
			if len(part) == len(chunk) {
				found = of
				return nil
			}
			if found == nil {
				found = make([]int64, len(chunk))
			}
			for i, user := range part {
				found[slices.Index(chunk, user)] = of[i]
			}
			return nil
		}))
		if err != nil {
			return nil, errs.Wrap(err, "look up %d users", len(users))
		}
		if found == nil {
			found = make([]int64, len(chunk))
		}
		until = append(until, found...)
	}
	return until, left.all()
}

func shardKey(user int64) string { return activeKey(shardOf(user)) }

// deadlinesOf is deadlines in one pipeline. It fails if any of the masters does not answer.
func (u *ActiveUsers) deadlinesOf(ctx context.Context, users []int64) ([]int64, error) {
	var members [activeShards][]string
	for _, user := range users {
		n := shardOf(user)
		members[n] = append(members[n], strconv.FormatInt(user, 10))
	}
	now := float64(u.cfg.nowMillis())
	var found [activeShards]*redis.FloatSliceCmd
	_, err := u.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range activeShards {
			if len(members[n]) > 0 {
				found[n] = p.ZMScore(ctx, activeKey(n), members[n]...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var next [activeShards]int
	until := make([]int64, len(users))
	for i, user := range users {
		n := shardOf(user)
		if deadline := found[n].Val()[next[n]]; deadline > now {
			until[i] = int64(deadline)
		}
		next[n]++
	}
	return until, nil
}

// Count returns how many users are active, or were at the last sweep.
//
// Cost: one round trip of 16 ZCARD.
func (u *ActiveUsers) Count(ctx context.Context) (int, error) {
	var counts [activeShards]*redis.IntCmd
	_, err := u.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range activeShards {
			counts[n] = p.ZCard(ctx, activeKey(n))
		}
		return nil
	})
	total := 0
	for _, c := range counts {
		total += int(c.Val())
	}
	return total, errs.Wrap(err, "count active users")
}

// Activity is a user and the time until which the user is active, in Unix milliseconds. The user
// who visited most recently is active longest.
type Activity struct{ User, Until int64 }

// byRecency sorts the most recently active user first.
func byRecency(a, b Activity) int {
	return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(a.User, b.User))
}

// Of returns the active ones among the users, most recently active first. If masters of a
// cluster do not answer, it leaves out the users whose activity is unknown and returns an Unreached
// with them.
//
// Cost: as Check.
func (u *ActiveUsers) Of(ctx context.Context, users []int64) ([]int64, error) {
	until, err := u.deadlines(ctx, users)
	if until == nil {
		return nil, err
	}
	var active []Activity
	for i, user := range users {
		if until[i] > 0 {
			active = append(active, Activity{User: user, Until: until[i]})
		}
	}
	slices.SortFunc(active, byRecency)
	of := make([]int64, len(active))
	for i, a := range active {
		of[i] = a.User
	}
	return of, err
}

// Recent returns about n of the most recently active users, the most recent first.
//
// Cost: one round trip, O(n).
func (u *ActiveUsers) Recent(ctx context.Context, n int) ([]Activity, error) {
	now := strconv.FormatInt(u.cfg.nowMillis(), 10)
	var found [activeShards]*redis.ZSliceCmd
	_, err := u.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range activeShards {
			found[shard] = p.ZRevRangeByScoreWithScores(ctx, activeKey(shard), &redis.ZRangeBy{
				Min: "(" + now, Max: "+inf", Count: int64(1 + n/activeShards),
			})
		}
		return nil
	})
	if err != nil {
		return nil, errs.Wrap(err, "list the most recently active users")
	}
	var list []Activity
	for _, cmd := range found {
		if list, err = appendActivity(list, cmd.Val()); err != nil {
			return nil, errs.Wrap(err, "list the most recently active users")
		}
	}
	slices.SortFunc(list, byRecency)
	return list[:min(n, len(list))], nil
}

// All returns all users who are active now. A user who becomes active later reads SQL
// later, and so misses no post that was committed before the call.
//
// Cost: one round trip per 1,000 active users, O(active users) in time and memory.
func (u *ActiveUsers) All(ctx context.Context) (map[int64]struct{}, error) {
	count, err := u.Count(ctx)
	if err != nil {
		return nil, err
	}
	users := make(map[int64]struct{}, count)
	err = eachSlice(ctx, u, redis.Cmdable.ZRangeByScore, func(members []string) error {
		for _, member := range members {
			user, err := strconv.ParseInt(member, 10, 64)
			if err != nil {
				return err
			}
			users[user] = struct{}{}
		}
		return nil
	})
	return users, errs.Wrap(err, "list active users")
}

// ByRecency returns all active users, most recently active first.
//
// Cost: three times as much as All.
func (u *ActiveUsers) ByRecency(ctx context.Context) ([]Activity, error) {
	var list []Activity
	err := eachSlice(ctx, u, redis.Cmdable.ZRangeByScoreWithScores, func(found []redis.Z) (err error) {
		list, err = appendActivity(list, found)
		return err
	})
	if err != nil {
		return nil, errs.Wrap(err, "list active users")
	}
	slices.SortFunc(list, byRecency)
	// A user who visits meanwhile is in two slices. The later deadline sorts first and is kept.
	seen := make(map[int64]struct{}, len(list))
	return slices.DeleteFunc(list, func(a Activity) bool {
		_, twice := seen[a.User]
		seen[a.User] = struct{}{}
		return twice
	}), nil
}

// appendActivity appends the members that a command found in a shard to the list.
func appendActivity(list []Activity, found []redis.Z) ([]Activity, error) {
	for _, z := range found {
		member, _ := z.Member.(string)
		user, err := strconv.ParseInt(member, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redis answered %v for a user: %w", z.Member, err)
		}
		list = append(list, Activity{User: user, Until: int64(z.Score)})
	}
	return list, nil
}

// rangeByScore is the command with which eachSlice reads a slice.
type rangeByScore[R any, C interface{ Result() (R, error) }] func(redis.Cmdable, context.Context, string, *redis.ZRangeBy) C

// eachSlice reads all active users, about 1,000 at a time, so that other clients of Redis do not
// wait for all of them. It calls visit for one slice after the other.
//
// A deadline only moves up, and a shard is read upwards, so a user who visits meanwhile is not
// missed.
func eachSlice[R any, C interface{ Result() (R, error) }](ctx context.Context, u *ActiveUsers, read rangeByScore[R, C], visit func(R) error) error {
	var visiting sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pipelines)
	for shard := range activeShards {
		g.Go(func() error {
			key := activeKey(shard)
			now := u.cfg.nowMillis()
			ends, err := u.sliceEnds(ctx, key, now)
			if err != nil {
				return err
			}
			from := "(" + strconv.FormatInt(now, 10)
			for _, to := range append(ends, "+inf") {
				found, err := read(u.rdb, ctx, key, &redis.ZRangeBy{Min: from, Max: to}).Result()
				if err != nil {
					return err
				}
				from = "(" + to
				visiting.Lock()
				err = visit(found)
				visiting.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// sliceEnds returns deadlines in ascending order that divide a shard into slices of about 1,000
// users. Users with the same deadline stay in one slice. Users who are not active are left out.
func (u *ActiveUsers) sliceEnds(ctx context.Context, key string, now int64) ([]string, error) {
	count, err := u.rdb.ZCard(ctx, key).Result()
	if err != nil || count <= batch {
		return nil, err
	}
	var at []*redis.ZSliceCmd
	_, err = u.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for rank := int64(batch); rank < count; rank += batch {
			at = append(at, p.ZRangeWithScores(ctx, key, rank, rank))
		}
		return nil
	})
	var ends []string
	for _, cmd := range at {
		if z := cmd.Val(); len(z) == 1 && int64(z[0].Score) > now {
			ends = append(ends, strconv.FormatInt(int64(z[0].Score), 10))
		}
	}
	return ends, err
}

// Sample returns n random active users, or all of them if there are fewer.
//
// Cost: one round trip of 16 ZRANDMEMBER, O(n).
func (u *ActiveUsers) Sample(ctx context.Context, n int) ([]int64, error) {
	var found [activeShards]*redis.StringSliceCmd
	_, err := u.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range activeShards {
			found[i] = p.ZRandMember(ctx, activeKey(i), n)
		}
		return nil
	})
	if err != nil {
		return nil, errs.Wrap(err, "sample active users")
	}
	var users []int64
	for _, cmd := range found {
		for _, member := range cmd.Val() {
			user, err := strconv.ParseInt(member, 10, 64)
			if err != nil {
				return nil, errs.Wrap(err, "sample active users")
			}
			users = append(users, user)
		}
	}
	rand.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
	return users[:min(n, len(users))], nil
}

// activity decodes the reply of the activate script and records the incarnation.
func (u *ActiveUsers) activity(user int64, cmd *redis.Cmd) (wasActive bool, incarnation string, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return false, "", err
	}
	if len(reply) != 2 {
		return false, "", fmt.Errorf("redis answered %d parts", len(reply))
	}
	incarnation, _ = reply[1].(string)
	u.note(shardOf(user), incarnation)
	return reply[0] == int64(1), incarnation, nil
}

// incarnation returns the last known incarnation of the user's shard. If it is outdated, a Visit
// drops the inboxes that were begun in it.
//
// Cost: none, except one round trip the first time.
func (u *ActiveUsers) incarnation(ctx context.Context, user int64) (string, error) {
	shard := shardOf(user)
	u.mu.Lock()
	known := u.incarnations[shard]
	u.mu.Unlock()
	if known != "" {
		return known, nil
	}
	now := u.cfg.nowMillis()
	done, err := u.run(ctx, call{activateScript, []string{activeKey(shard)}, []any{formatID(user), now, now}})
	if err != nil {
		return "", err
	}
	_, incarnation, err := u.activity(user, done[0])
	return incarnation, err
}

// note records the incarnation of a shard. It calls Reborn if the shard had another incarnation
// before and no other shard is known in this one.
func (u *ActiveUsers) note(shard int, incarnation string) {
	u.mu.Lock()
	before, known := u.incarnations[shard], slices.Contains(u.incarnations[:], incarnation)
	u.incarnations[shard] = incarnation
	u.mu.Unlock()
	if before != "" && !known {
		u.cfg.Reborn()
	}
}
