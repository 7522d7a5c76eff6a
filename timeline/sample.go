package timeline

import (
	"context"
	"math/rand/v2"

	"github.com/redis/go-redis/v9"
)

// Sample returns n active users, chosen at random; all of them when there are fewer.
//
// Cost: one round trip of 16 ZRANDMEMBER, O(n).
func (s *Store) Sample(ctx context.Context, n int) ([]int64, error) {
	var found [shards]*redis.StringSliceCmd
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range shards {
			found[i] = p.ZRandMember(ctx, activeKey(i), n)
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "sample active users")
	}
	var users []int64
	for _, cmd := range found {
		for _, member := range cmd.Val() {
			user, err := parseID(member)
			if err != nil {
				return nil, wrap(err, "sample active users")
			}
			users = append(users, user)
		}
	}
	rand.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
	return users[:min(n, len(users))], nil
}
