package timeline

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// SweepResult is the result of one Sweep.
type SweepResult struct {
	// Expired is how many users are no longer active.
	Expired int
	// Visited is how many inboxes were checked.
	Visited int
	// Trimmed is how many visited inboxes exceeded their cap by more than a tenth.
	Trimmed int
	// Cut is how many ids were removed.
	Cut int
	// Lost is how many inboxes had lost their coverage or their ids and were not found before. What
	// is left of them expires within the hour.
	Lost int
	// Complete says that a round through all active users has ended.
	Complete bool
}

// Sweeper removes users who are no longer active and trims the inboxes of the others. It is safe
// for concurrent use.
type Sweeper struct {
	scripts
	cfg     Config
	inboxes *Inboxes

	mu sync.Mutex    // guards the field below
	at sweepPosition // in the round of this process
}

// sweepPosition is a position in a round. The users of the shard with a deadline later than after
// and not later than until are still to be visited.
type sweepPosition struct {
	shard        int
	after, until int64 // Unix milliseconds; until is 0 if the shard has not been begun
}

// Sweep removes users who are no longer active, and trims the inboxes of at most 1,000 more active
// users. It remembers where it stopped, so repeated calls visit all active users.
//
// A round goes by deadline. A user who visits meanwhile, or has a deadline in the same millisecond as
// the last one of a call, may wait for the next round. Several
// processes may sweep, each with its own round. Outboxes need no sweep, because every Add trims.
//
// Cost: at most 18 round trips, and two for each shard where users are removed, O(log active users
// + expired), a script per inbox visited or removed, O(1) if there is nothing to trim. Never KEYS
// or SCAN.
func (s *Sweeper) Sweep(ctx context.Context) (SweepResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var result SweepResult
	var err error
	if err = s.expire(ctx, &result); err != nil {
		return result, fmt.Errorf("sweep: expire users: %w", err)
	}
	users, next, err := s.nextActive(ctx, s.at)
	if err != nil {
		return result, fmt.Errorf("sweep: active users: %w", err)
	}
	if len(users) > 0 {
		t, err := s.inboxes.trim(ctx, users)
		if err != nil {
			return result, fmt.Errorf("sweep: %w", err)
		}
		result.Visited, result.Trimmed, result.Cut = len(users), t.feeds, t.ids
		result.Lost += t.lost
	}
	s.at = next
	result.Complete = next == sweepPosition{}
	return result, nil
}

// expire removes users whose deadline has passed, at most 1,000 per shard. Their inboxes expire by
// themselves. This is the last look at these inboxes, so it also gives an expiry to sets that have none.
func (s *Sweeper) expire(ctx context.Context, result *SweepResult) error {
	now := strconv.FormatInt(s.cfg.nowMillis(), 10)
	var found [activeShards]*redis.ZSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range activeShards {
			found[n] = p.ZRangeByScoreWithScores(ctx, activeKey(n), &redis.ZRangeBy{Min: "-inf", Max: now, Count: batch})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n, cmd := range found {
		over, err := appendActivity(nil, cmd.Val())
		if err != nil {
			return err
		}
		if len(over) == 0 {
			continue
		}
		users := make([]int64, len(over))
		for i, a := range over {
			users[i] = a.User
		}
		t, err := s.inboxes.trim(ctx, users)
		if err != nil {
			return err
		}
		// By deadline: a user who visits meanwhile has a later one.
		last := strconv.FormatInt(over[len(over)-1].Until, 10)
		removed, err := s.rdb.ZRemRangeByScore(ctx, activeKey(n), "-inf", last).Result()
		if err != nil {
			return err
		}
		result.Expired, result.Lost = result.Expired+int(removed), result.Lost+t.lost
	}
	return nil
}

// nextActive returns the next users of the round and the position after them. The position is zero
// if the round ends with them.
func (s *Sweeper) nextActive(ctx context.Context, at sweepPosition) (users []int64, next sweepPosition, err error) {
	for ; at.shard < activeShards; at = (sweepPosition{shard: at.shard + 1}) {
		if at.until == 0 {
			at.until = s.cfg.deadline(s.cfg.nowMillis())
		}
		room := batch - len(users)
		found, err := s.rdb.ZRangeByScoreWithScores(ctx, activeKey(at.shard), &redis.ZRangeBy{
			Min:   "(" + strconv.FormatInt(at.after, 10),
			Max:   strconv.FormatInt(at.until, 10),
			Count: int64(room),
		}).Result()
		if err != nil {
			return nil, at, err
		}
		list, err := appendActivity(nil, found)
		if err != nil {
			return nil, at, err
		}
		for _, a := range list {
			users = append(users, a.User)
		}
		if len(found) == room {
			at.after = list[room-1].Until
			return users, at, nil
		}
	}
	return users, sweepPosition{}, nil
}
