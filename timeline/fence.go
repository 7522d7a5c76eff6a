package timeline

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Fence remembers for one hour that the viewer lost the author's posts, so
// that a fan-out which read its followers before can leave the viewer out, or
// take back what it pushed. Everything older is forgotten on the way: what is
// kept is bounded by the relations of one author that end within an hour.
//
// Cost: one round trip, O(log fences).
func (s *Store) Fence(ctx context.Context, author, viewer int64) error {
	key := Outbox(author).fences()
	now := s.cfg.Now().Unix()
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: float64(now), Member: formatID(viewer)})
		p.ZRemRangeByScore(ctx, key, "-inf", fencesBefore(now))
		p.Expire(ctx, key, fenceLife+margin)
		return nil
	})
	return wrap(err, "fence viewer %d off author %d", viewer, author)
}

// Fenced returns the viewers fenced off the author within the last hour.
//
// Cost: one round trip, O(fences).
func (s *Store) Fenced(ctx context.Context, author int64) ([]int64, error) {
	members, err := s.rdb.ZRangeByScore(ctx, Outbox(author).fences(), &redis.ZRangeBy{
		Min: fencesBefore(s.cfg.Now().Unix()), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, wrap(err, "fences of author %d", author)
	}
	viewers := make([]int64, len(members))
	for i, m := range members {
		if viewers[i], err = parseID(m); err != nil {
			return nil, wrap(err, "fences of author %d", author)
		}
	}
	return viewers, nil
}

// fencesBefore is the exclusive end of the fences that are over.
func fencesBefore(now int64) string {
	return "(" + strconv.FormatInt(now-int64(fenceLife.Seconds()), 10)
}
