package timeline

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fence remembers for one hour that the relation between the viewer and the author
// changed, so that a fan-out which read its followers before can look at the viewer
// again. It forgets what is older. So what is stored is bounded by the relations of
// one author that change within an hour, and the fan-outs under way.
//
// Cost: one round trip, O(log fences).
func (s *Store) Fence(ctx context.Context, author, viewer int64) error {
	return wrap(s.mark(ctx, author, formatID(viewer)), "fence viewer %d and author %d", viewer, author)
}

// mark adds a member to the author's fences, and removes those that are over.
func (s *Store) mark(ctx context.Context, author int64, member string) error {
	key, now := Outbox(author).fences(), s.cfg.Now().Unix()
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: float64(now), Member: member})
		p.ZRemRangeByScore(ctx, key, "-inf", fencesBefore(now))
		p.Expire(ctx, key, fenceLife+clockMargin)
		return nil
	})
	return err
}

// Watch begins to watch the author's fences for the fan-out of a job: if fences are
// lost from now on, Fenced says so.
//
// Cost: one round trip, O(log fences).
func (s *Store) Watch(ctx context.Context, author, job int64) error {
	return wrap(s.mark(ctx, author, watch(job)), "watch the fences of author %d", author)
}

// Unwatch ends what Watch began.
//
// Cost: as Watch.
func (s *Store) Unwatch(ctx context.Context, author, job int64) error {
	return wrap(s.rdb.ZRem(ctx, Outbox(author).fences(), watch(job)).Err(), "watch the fences of author %d no more", author)
}

// watch is the member that stands for the watch of a job.
func watch(job int64) string { return "w" + formatID(job) }

// Fenced returns the viewers that were fenced since then, to the second and within
// the last hour. If whole is false there may be others: Redis has lost fences since
// Watch, or Watch was not called within the last hour.
//
// Cost: one round trip, O(fences returned).
func (s *Store) Fenced(ctx context.Context, author, job int64, since time.Time) (viewers []int64, whole bool, err error) {
	first := max(since.Unix(), s.cfg.Now().Add(-fenceLife).Unix())
	members, err := s.rdb.ZRangeByScore(ctx, Outbox(author).fences(), &redis.ZRangeBy{
		Min: strconv.FormatInt(first, 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, false, wrap(err, "fences of author %d", author)
	}
	for _, m := range members {
		if strings.HasPrefix(m, "w") {
			whole = whole || m == watch(job)
			continue
		}
		viewer, err := parseID(m)
		if err != nil {
			return nil, false, wrap(err, "fences of author %d", author)
		}
		viewers = append(viewers, viewer)
	}
	return viewers, whole, nil
}

// fencesBefore is the score below which fences are over.
func fencesBefore(now int64) string {
	return "(" + strconv.FormatInt(now-int64(fenceLife.Seconds()), 10)
}
