package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The errors of CheckRedis that say that Redis serves in part.
var (
	// ErrSomeAnswer is that some masters of a Redis Cluster answer and others do not.
	ErrSomeAnswer = errors.New("some masters of the Redis Cluster do not answer")
	// ErrNoWrites is that Redis, or a master of a Redis Cluster, answers and takes no writes:
	// its memory is full, it is a replica, or it cannot save.
	ErrNoWrites = errors.New("Redis answers and takes no writes")
)

const (
	// writeKey begins the keys that CheckRedis writes, which live for writeLife.
	writeKey  = "live:check:"
	writeLife = time.Minute
	// maxWriteKeys bounds how many keys CheckRedis tries to find one that a master has.
	maxWriteKeys = 4096
)

// CheckRedis writes to every master: a master that only answers is of half use, and it
// alone knows whether it takes a write. It fails with ErrSomeAnswer when only some answer:
// then the feeds of some users are read from SQL. It fails with ErrNoWrites when all answer
// and some do not take the write. A master without slots is asked for an answer only.
//
// Cost: two round trips at most, to all at once. The keys hold no value and end by
// themselves; there is one for each master, whoever asks.
func (s *Stores) CheckRedis(ctx context.Context) error {
	cluster, ok := s.Redis.(*redis.ClusterClient)
	if !ok {
		return refused(s.Redis.Set(ctx, writeKey+"0", "", writeLife).Err())
	}
	var answer atomic.Int32
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := master.Ping(ctx).Err()
		if err == nil {
			answer.Add(1)
			if key := keyOf(ctx, cluster, master.Options().Addr); key != "" {
				err = refused(cluster.Set(ctx, key, "", writeLife).Err())
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", master.Options().Addr, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrNoWrites) && answer.Load() > 0 {
		return fmt.Errorf("%w: %w", ErrSomeAnswer, err)
	}
	return err
}

// keyOf returns a key in a slot of the master, "" if it finds none.
//
// Cost: no round trip. It tries about as many keys as there are masters.
func keyOf(ctx context.Context, cluster *redis.ClusterClient, master string) string {
	for i := range maxWriteKeys {
		key := writeKey + strconv.Itoa(i)
		if of, err := cluster.MasterForKey(ctx, key); err == nil && of.Options().Addr == master {
			return key
		}
	}
	return ""
}

// refused adds ErrNoWrites to what Redis says when it takes no writes at all.
func refused(err error) error {
	for _, words := range []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN"} {
		if redis.HasErrorPrefix(err, words) {
			return fmt.Errorf("%w: %w", ErrNoWrites, err)
		}
	}
	return err
}
