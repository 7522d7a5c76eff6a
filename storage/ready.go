package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The errors with which CheckRedis reports a partial failure.
var (
	// ErrSomeAnswer means that some masters of a Redis Cluster answer and others do not.
	ErrSomeAnswer = errors.New("some masters of the Redis Cluster do not answer")
	// ErrNoWrites means that Redis, or a master of a Redis Cluster, answers but accepts no writes:
	// its memory is full, it is a replica, it cannot save, it lacks the replicas that it is told to
	// require, or its cluster is down.
	ErrNoWrites = errors.New("Redis answers but takes no writes")
)

const (
	// writeKey is the prefix of the keys that CheckRedis writes. They live for writeLife.
	writeKey  = "live:check:"
	writeLife = time.Minute
	// masterTimeout bounds how long CheckMasters waits for one master of a cluster.
	masterTimeout = time.Second
	// maxWriteKeys bounds the search for a key in a slot of a given master.
	maxWriteKeys = 4096
)

// CheckRedis checks all masters with CheckMasters. It returns ErrSomeAnswer if only some answer;
// the feeds of some users are then read from SQL. It returns ErrNoWrites if all answer and some
// reject the write.
//
// Cost: the cost of CheckMasters.
func (s *Stores) CheckRedis(ctx context.Context) error {
	masters, err := s.CheckMasters(ctx)
	if err != nil {
		return err
	}
	var silent, refuse error
	for addr, err := range masters {
		switch {
		case err == nil:
		case errors.Is(err, ErrNoWrites):
			refuse = fmt.Errorf("%s: %w", addr, err)
		default:
			silent = fmt.Errorf("%s: %w", addr, err)
			delete(masters, addr)
		}
	}
	if silent != nil && len(masters) > 0 {
		return fmt.Errorf("%w: %w", ErrSomeAnswer, silent)
	}
	return cmp.Or(silent, refuse)
}

// CheckMasters writes a key to every master, because only a write shows whether the master accepts
// writes. It returns the result of each master, by address; without a cluster, the only key is
// "Redis". An error that wraps ErrNoWrites means that the master answers but rejects writes. A
// master for which no key is found is only pinged: usually it has no slots. CheckMasters itself
// fails if it cannot find out the masters of a Redis Cluster, or if ctx ends before all are asked.
//
// Cost: at most two round trips to each master, all masters at once, and masterTimeout if one does
// not answer. The keys hold no value and expire. There is one per master, however many processes
// check.
func (s *Stores) CheckMasters(ctx context.Context) (map[string]error, error) {
	cluster, ok := s.Redis.(*redis.ClusterClient)
	if !ok {
		return map[string]error{"Redis": refused(s.Redis.Set(ctx, writeKey+"0", "", writeLife).Err())}, nil
	}
	var mu sync.Mutex // guards answers
	answers := map[string]error{}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		if ctx.Err() != nil { // the master was not asked
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(ctx, masterTimeout)
		defer cancel()
		addr := master.Options().Addr
		err := master.Ping(ctx).Err()
		if err == nil {
			if key := keyOf(ctx, cluster, addr); key != "" {
				err = refused(cluster.Set(ctx, key, "", writeLife).Err())
			}
		}
		mu.Lock()
		answers[addr] = err
		mu.Unlock()
		return nil
	})
	return answers, err
}

// keyOf returns a key in a slot of the master, or "" if it finds none among maxWriteKeys.
//
// Cost: no round trip. Usually it tries about as many keys as there are masters.
func keyOf(ctx context.Context, cluster *redis.ClusterClient, master string) string {
	for i := range maxWriteKeys {
		key := writeKey + strconv.Itoa(i)
		if of, err := cluster.MasterForKey(ctx, key); err == nil && of.Options().Addr == master {
			return key
		}
	}
	return ""
}

// refused wraps ErrNoWrites around the errors of a Redis that rejects all writes.
func refused(err error) error {
	for _, words := range []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN"} {
		if redis.HasErrorPrefix(err, words) {
			return fmt.Errorf("%w: %w", ErrNoWrites, err)
		}
	}
	return err
}
