package timeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"tideline/timeline/reach"
)

// Visit says that the user is reading, and returns the end of the inbox's journal,
// the zero Position when the inbox is Missing. For at least ActiveFor from now,
// Deliver pushes to the inbox, and the inbox is kept. If the user was not active,
// posts may have been skipped: then Visit drops the inbox. So call it before the
// inbox is read. What Redis knows of activity is trusted within one incarnation of it:
// where that is another one than the inbox was begun in, Visit drops the inbox, too.
//
// Cost: one round trip of two scripts, O(log active users / 16); two more for
// a user who was not active.
func (s *Store) Visit(ctx context.Context, user int64) (Position, error) {
	at, _, err := s.visit(ctx, user)
	return at, err
}

// VisitPage is Visit, and then Page, in one. The part is that of a Missing inbox
// when the position is zero.
//
// Cost: as Visit, and O(log size + Limit).
func (s *Store) VisitPage(ctx context.Context, user int64, r Range) (at Position, p Part, err error) {
	args, err := r.args()
	if err != nil {
		return at, p, wrap(err, "page of %s", Inbox(user))
	}
	at, page, err := s.visit(ctx, user, call{pageScript, Inbox(user).keys(), args})
	// A page that was read before the user was found to be active was pushed to all
	// the time as well.
	if err == nil && at != (Position{}) {
		p, err = part(page)
	}
	// Only the page has looked whether the inbox is intact. An inbox of another epoch is
	// another one than that which was found to be pushed to.
	if err != nil || p.Epoch != at.Epoch {
		return Position{}, Part{}, wrap(err, "page of %s", Inbox(user))
	}
	return at, p, nil
}

// visit is Visit. It also returns the answer of one more script, which runs after the
// end of the journal was read, and which finds out in place of Visit whether the inbox
// is intact.
func (s *Store) visit(ctx context.Context, user int64, more ...call) (at Position, answer *redis.Cmd, err error) {
	k, shard, member := Inbox(user), activeKey(shardOf(user)), formatID(user)
	now := s.nowMillis()
	deadline := s.deadline(now)
	// In this order: a reader that finds the inbox which another has begun also finds
	// the user active.
	done, err := s.run(ctx, append([]call{
		{extendScript, k.keys(), []any{s.life(k), s.setLife(k), flag(len(more) == 0)}},
		{activateScript, []string{shard}, []any{member, now, deadline}},
	}, more...)...)
	if err != nil {
		return at, nil, wrap(err, "visit of user %d", user)
	}
	wasActive, incarnation, err := s.activity(user, done[1])
	if err != nil {
		return at, nil, wrap(err, "visit of user %d", user)
	}
	at, rest, err := position(done[0], 3)
	// The inbox was pushed to all the time if the user was active all the time. That is
	// known within one incarnation of the shard only: before the present one the user may
	// have been forgotten for a while.
	if err != nil || wasActive && (at.Epoch == 0 || rest[0] == incarnation) {
		return at, done[len(done)-1], wrap(err, "visit of user %d", user)
	}
	// Not in one pipeline: if the user were active before the inbox is gone, an inbox
	// with a hole would count as complete. The epoch protects an inbox that another
	// reader has begun since.
	if at.Epoch != 0 {
		if _, err := s.runOne(ctx, dropScript, k, formatID(at.Epoch)); err != nil {
			return Position{}, nil, wrap(err, "visit of user %d", user)
		}
	}
	err = s.rdb.ZAdd(ctx, shard, redis.Z{Score: float64(deadline), Member: member}).Err()
	return Position{}, nil, wrap(err, "visit of user %d", user)
}

// activity decodes the answer of the activate script, and remembers the incarnation.
func (s *Store) activity(user int64, cmd *redis.Cmd) (active bool, incarnation string, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return false, "", err
	}
	if len(reply) != 2 {
		return false, "", fmt.Errorf("redis answered %d parts", len(reply))
	}
	incarnation, _ = reply[1].(string)
	s.met.note(shardOf(user), incarnation, s.cfg.Reborn)
	return reply[0] == int64(1), incarnation, nil
}

// incarnation returns the incarnation of the user's shard of active users, as this
// process met it last. If that is over, a Visit drops what was begun in it.
//
// Cost: none, and one round trip the first time.
func (s *Store) incarnation(ctx context.Context, user int64) (string, error) {
	shard := shardOf(user)
	if known := s.met.last(shard); known != "" {
		return known, nil
	}
	now := s.nowMillis()
	done, err := s.run(ctx, call{activateScript, []string{activeKey(shard)}, []any{formatID(user), now, now}})
	if err != nil {
		return "", err
	}
	_, incarnation, err := s.activity(user, done[0])
	return incarnation, err
}

// met remembers in which incarnation this process met each shard of active users last.
type met struct {
	mu sync.Mutex
	in [shards]string
}

func (m *met) last(shard int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in[shard]
}

// note remembers the incarnation. It calls reborn when the shard was met in another one
// before, and no other shard in this one.
func (m *met) note(shard int, incarnation string, reborn func()) {
	m.mu.Lock()
	before, known := m.in[shard], slices.Contains(m.in[:], incarnation)
	m.in[shard] = incarnation
	m.mu.Unlock()
	if before != "" && !known {
		reborn()
	}
}

// Active returns for each user whether Deliver would push to them.
//
// Cost: a round trip of at most 16 ZMSCORE per 1,000 users, O(users). The 16
// keys are spread over the nodes of a cluster.
func (s *Store) Active(ctx context.Context, users []int64) ([]bool, error) {
	deadlines, err := s.deadlines(ctx, users)
	if err != nil {
		return nil, err
	}
	active := make([]bool, len(users))
	for i, d := range deadlines {
		active[i] = d > 0
	}
	return active, nil
}

// deadlines returns until when each user is active, 0 for one who is not. With an
// Unreached it returns those of the others, and 0 for its users.
func (s *Store) deadlines(ctx context.Context, users []int64) ([]int64, error) {
	var left reach.Left
	until := make([]int64, 0, len(users))
	for chunk := range slices.Chunk(users, batch) {
		var merging sync.Mutex
		var found []int64
		err := left.Add(s.masters.Users(ctx, chunk, activeShard, func(ctx context.Context, part []int64) error {
			of, err := s.deadlinesOf(ctx, part)
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
			return nil, wrap(err, "look up %d users", len(users))
		}
		if found == nil {
			found = make([]int64, len(chunk))
		}
		until = append(until, found...)
	}
	return until, left.All()
}

func activeShard(user int64) string { return activeKey(shardOf(user)) }

// deadlinesOf is deadlines in one pipeline.
func (s *Store) deadlinesOf(ctx context.Context, users []int64) ([]int64, error) {
	var members [shards][]string
	for _, user := range users {
		n := shardOf(user)
		members[n] = append(members[n], formatID(user))
	}
	now := float64(s.nowMillis())
	var found [shards]*redis.FloatSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range shards {
			if len(members[n]) > 0 {
				found[n] = p.ZMScore(ctx, activeKey(n), members[n]...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var next [shards]int
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

// ActiveCount returns how many users are active, or were at the last sweep.
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

// Activity is until when a user is active, in Unix milliseconds. The user who read
// most recently is active longest.
type Activity struct{ User, Until int64 }

// byRecency orders the most recently active first.
func byRecency(a, b Activity) int {
	return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(a.User, b.User))
}

// ActiveOf returns those of the users who are active, the most recently active first.
// On a cluster, users of whom it cannot be known are left out, and the error is an
// Unreached with these.
//
// Cost: as Active.
func (s *Store) ActiveOf(ctx context.Context, users []int64) ([]int64, error) {
	until, err := s.deadlines(ctx, users)
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

// RecentlyActive returns about n of the users who were active most recently, the
// very last one first.
//
// Cost: one round trip, O(n).
func (s *Store) RecentlyActive(ctx context.Context, n int) ([]Activity, error) {
	now := strconv.FormatInt(s.nowMillis(), 10)
	var found [shards]*redis.ZSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range shards {
			found[shard] = p.ZRevRangeByScoreWithScores(ctx, activeKey(shard), &redis.ZRangeBy{
				Min: "(" + now, Max: "+inf", Count: int64(1 + n/shards),
			})
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "list the most recently active users")
	}
	var list []Activity
	for _, cmd := range found {
		if list, err = appendActivity(list, cmd.Val()); err != nil {
			return nil, wrap(err, "list the most recently active users")
		}
	}
	slices.SortFunc(list, byRecency)
	return list[:min(n, len(list))], nil
}

// ActiveUsers returns all users who are active at this moment. A user who becomes
// active later reads SQL later, and so misses no post that was committed before the
// call.
//
// Cost: one round trip per 1,000 active users, O(active users) in time and
// memory.
func (s *Store) ActiveUsers(ctx context.Context) (map[int64]struct{}, error) {
	count, err := s.ActiveCount(ctx)
	if err != nil {
		return nil, err
	}
	users := make(map[int64]struct{}, count)
	err = eachSlice(ctx, s, redis.Cmdable.ZRangeByScore, func(members []string) error {
		for _, member := range members {
			user, err := parseID(member)
			if err != nil {
				return err
			}
			users[user] = struct{}{}
		}
		return nil
	})
	return users, wrap(err, "list active users")
}

// ActiveByRecency is ActiveUsers, the most recently active first.
//
// Cost: three times that of ActiveUsers.
func (s *Store) ActiveByRecency(ctx context.Context) ([]Activity, error) {
	var list []Activity
	err := eachSlice(ctx, s, redis.Cmdable.ZRangeByScoreWithScores, func(found []redis.Z) (err error) {
		list, err = appendActivity(list, found)
		return err
	})
	if err != nil {
		return nil, wrap(err, "list active users")
	}
	slices.SortFunc(list, byRecency)
	// A user who read meanwhile is in two slices. The later deadline comes first.
	seen := make(map[int64]struct{}, len(list))
	return slices.DeleteFunc(list, func(a Activity) bool {
		_, twice := seen[a.User]
		seen[a.User] = struct{}{}
		return twice
	}), nil
}

func appendActivity(list []Activity, found []redis.Z) ([]Activity, error) {
	for _, z := range found {
		user, err := parseID(z.Member)
		if err != nil {
			return nil, err
		}
		list = append(list, Activity{User: user, Until: int64(z.Score)})
	}
	return list, nil
}

// rangeByScore is a command that eachSlice reads with.
type rangeByScore[R any, C interface{ Result() (R, error) }] func(redis.Cmdable, context.Context, string, *redis.ZRangeBy) C

// eachSlice reads all active users, about 1,000 at a time, so that no other client
// waits for Redis behind all of them. It calls visit for one slice after the other.
//
// A deadline only moves up, and a shard is read upwards: a user who reads meanwhile
// is not missed.
func eachSlice[R any, C interface{ Result() (R, error) }](ctx context.Context, s *Store, read rangeByScore[R, C], visit func(R) error) error {
	var visiting sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pipelines)
	for shard := range shards {
		g.Go(func() error {
			key := activeKey(shard)
			now := s.nowMillis()
			ends, err := s.sliceEnds(ctx, key, now)
			if err != nil {
				return err
			}
			from := "(" + strconv.FormatInt(now, 10)
			for _, to := range append(ends, "+inf") {
				found, err := read(s.rdb, ctx, key, &redis.ZRangeBy{Min: from, Max: to}).Result()
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

// sliceEnds returns deadlines in ascending order, between any two of which a shard
// has about 1,000 users. Users with the same deadline stay together, and users who
// are not active now stay out.
func (s *Store) sliceEnds(ctx context.Context, key string, now int64) ([]string, error) {
	count, err := s.rdb.ZCard(ctx, key).Result()
	if err != nil || count <= batch {
		return nil, err
	}
	var at []*redis.ZSliceCmd
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
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
