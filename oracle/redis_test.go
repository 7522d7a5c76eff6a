package oracle

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"tideline/storage/storagetest"
)

// masters returns the masters of Redis, always in the same order.
func (e *engine) masters() (list []*redis.Client, err error) {
	cluster, ok := e.s.Redis.(*redis.ClusterClient)
	if !ok {
		return []*redis.Client{e.s.Redis.(*redis.Client)}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(e.ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
		return nil
	})
	slices.SortFunc(list, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return list, err
}

// real reports whether Redis is a separate process, which can be rolled back.
func (e *engine) real() bool { return storagetest.Config(e.s).RedisURL != "" }

// deafen records that Redis may have lost the activity of users and the records of conversations,
// and nothing else. Open streams notice this within minutes, or when their clients reconnect.
func (r *run) deafen() {
	for _, c := range r.clients {
		c.deaf = c.at != nil
	}
	for _, c := range r.talks {
		c.deaf = c.at != nil
	}
}

// snapshot saves the data of Redis.
func (r *run) snapshot() error {
	if !r.real() {
		return nil
	}
	r.say("Redis takes a snapshot")
	r.saved = true
	masters, err := r.masters()
	if err != nil {
		return err
	}
	for _, m := range masters {
		if err := m.Save(r.ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// rollBack restores the snapshot in one master of a cluster, or in all of them. A single server
// sometimes crashes and restarts instead.
func (r *run) rollBack(n int) error {
	if !r.saved {
		return nil
	}
	masters, err := r.masters()
	if err != nil {
		return err
	}
	switch one := n % (len(masters) + 1); {
	case len(masters) == 1 && n%3 == 0:
		r.say("Redis is killed, and starts from the snapshot")
		server := storagetest.Redis(r.t, r.s)
		server.Kill()
		server.Start(r.t)
		return nil
	case len(masters) > 1 && one < len(masters):
		r.say("master %d of Redis goes back to the snapshot", one)
		masters = masters[one : one+1]
		r.deafen()
	default:
		r.say("Redis goes back to the snapshot")
	}
	for _, m := range masters {
		if err := storagetest.RollBack(r.ctx, m); err != nil {
			return err
		}
	}
	return nil
}
