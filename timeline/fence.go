package timeline

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fence remembers for one hour that what is between the viewer and the author
// changed, so that a fan-out which read its followers before can look at the
// viewer again. Everything older is forgotten on the way: what is kept is bounded
// by the relations of one author that change within an hour.
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
	return wrap(err, "fence viewer %d and author %d", viewer, author)
}

// Fenced returns the viewers fenced since then, to the second and within the
// last hour.
//
// Cost: one round trip, O(fences returned).
func (s *Store) Fenced(ctx context.Context, author int64, since time.Time) ([]int64, error) {
	first := max(since.Unix(), s.cfg.Now().Add(-fenceLife).Unix())
	members, err := s.rdb.ZRangeByScore(ctx, Outbox(author).fences(), &redis.ZRangeBy{
		Min: strconv.FormatInt(first, 10), Max: "+inf",
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
