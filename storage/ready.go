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
	// masterTimeout bounds how long CheckMasters waits for one master of a cluster.
	masterTimeout = time.Second
	// maxWriteKeys bounds how many keys CheckRedis tries to find one that a master has.
	maxWriteKeys = 4096
)

// CheckRedis checks all masters with CheckMasters. It fails with ErrSomeAnswer when only
// some answer: the feeds of some users are then read from SQL. It fails with ErrNoWrites
// when all answer and some do not take the write.
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

// CheckMasters writes to every master: only the master knows whether it takes a write.
// It returns what each answered, by address. An error that wraps ErrNoWrites means that
// the master answers and takes no writes. A master without slots is only asked for an
// answer. CheckMasters itself fails when ctx ends before the masters of a Redis Cluster
// are known.
//
// Cost: two round trips at most, to all at once, and masterTimeout where one does not
// answer. The keys hold no value and expire; there is one for each master, however many
// processes ask.
func (s *Stores) CheckMasters(ctx context.Context) (map[string]error, error) {
	cluster, ok := s.Redis.(*redis.ClusterClient)
	if !ok {
		return map[string]error{"Redis": refused(s.Redis.Set(ctx, writeKey+"0", "", writeLife).Err())}, nil
	}
	var mu sync.Mutex // guards answers
	answers := map[string]error{}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		if ctx.Err() != nil { // it was not asked
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
