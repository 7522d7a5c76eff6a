package timeline

import (
	"context"
	"math/rand/v2"
)

// Sample is up to n active users, chosen at random.
//
// Cost: one round trip, O(n).
func (s *Store) Sample(ctx context.Context, n int) ([]int64, error) {
	members, err := s.rdb.ZRandMember(ctx, activeKey(rand.IntN(shards)), n).Result()
	if err != nil {
		return nil, wrap(err, "sample active users")
	}
	users := make([]int64, len(members))
	for i, m := range members {
		if users[i], err = parseID(m); err != nil {
			return nil, wrap(err, "sample active users")
		}
	}
	return users, nil
}
