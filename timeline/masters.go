package timeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"tideline/internal/redisclient"
)

const (
	// pipelineLimit is the longest time that a pipeline to a cluster waits for all masters.
	// masterLimit is the limit for one master after that.
	pipelineLimit = 2 * time.Second
	masterLimit   = time.Second
	// avoidFor is how long a master that could not be reached is not asked again.
	avoidFor = 5 * time.Second
	// suspectFor is how long after that each master gets pipelines of its own.
	suspectFor = 30 * time.Second
)

// Unreached is the error of a call that succeeded for some users only: the masters of the other
// users' keys cannot be reached. It occurs only on a cluster.
type Unreached struct {
	Users []int64 // in any order, possibly repeated
	Err   error
}

func (u *Unreached) Error() string {
	return fmt.Sprintf("%d users not reached: %v", len(u.Users), u.Err)
}
func (u *Unreached) Unwrap() error { return u.Err }

// unreachedUsers collects the users that several calls did not reach. It is safe for concurrent
// use. The zero value is empty.
type unreachedUsers struct {
	mu    sync.Mutex
	users []int64
	err   error
}

// add records an Unreached and returns nil. It returns any other error.
func (u *unreachedUsers) add(err error) error {
	var some *Unreached
	if !errors.As(err, &some) {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.users, u.err = append(u.users, some.Users...), some.Err
	return nil
}

// all returns everything that was added as one error, nil if nothing was added.
func (u *unreachedUsers) all() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		return nil
	}
	return &Unreached{u.users, u.err}
}

// sharded reports whether the keys are on several masters.
func (m *Masters) sharded() bool {
	return redisclient.Sharded(m.rdb)
}

// forUsers calls do for the users; key returns the key of a user. If a master of a cluster cannot
// be reached, it calls do again for the users of each master separately. The error is then an
// Unreached with the users of the masters that fail. A part of the work may be done twice.
//
// Cost: none while all masters answer. Otherwise the limits above, and one call in 5 s to a master
// that did not answer.
func (m *Masters) forUsers(ctx context.Context, users []int64, key func(user int64) string, do func(ctx context.Context, users []int64) error) error {
	cluster, sharded := m.rdb.(*redis.ClusterClient)
	if !sharded {
		return do(ctx, users)
	}
	if m.fine() {
		err := within(ctx, pipelineLimit, func(ctx context.Context) error { return do(ctx, users) })
		if !unavailable(ctx, err) {
			return err
		}
	}
	var left unreachedUsers
	parts := map[string][]int64{}
	for _, user := range users {
		master, err := cluster.MasterForKey(ctx, key(user))
		if err != nil {
			_ = left.add(&Unreached{[]int64{user}, err})
			continue
		}
		parts[master.Options().Addr] = append(parts[master.Options().Addr], user)
	}
	var g errgroup.Group
	for addr, part := range parts {
		g.Go(func() error {
			if err := m.avoid(addr); err != nil {
				return left.add(&Unreached{part, err})
			}
			err := within(ctx, masterLimit, func(ctx context.Context) error { return do(ctx, part) })
			if unavailable(ctx, err) {
				m.fails(addr, err)
				return left.add(&Unreached{part, err})
			}
			if err == nil {
				m.answers(addr)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return left.all()
}

// WithinLimit calls do, which accesses a few keys, with a time limit on a cluster. The error is an
// Unreached without users if a part of a cluster cannot be reached.
func (m *Masters) WithinLimit(ctx context.Context, do func(ctx context.Context) error) error {
	if !m.sharded() {
		return do(ctx)
	}
	return m.MarkUnreached(ctx, within(ctx, pipelineLimit, do))
}

// MarkUnreached wraps err in an Unreached without users if a part of a cluster cannot be reached. It
// returns every other error, nil and an Unreached as they are.
func (m *Masters) MarkUnreached(ctx context.Context, err error) error {
	var some *Unreached
	if m.sharded() && !errors.As(err, &some) && unavailable(ctx, err) {
		return &Unreached{nil, err}
	}
	return err
}

func within(ctx context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// unavailable reports whether err says that a server does not answer or cannot serve now. Errors of
// the caller's context and of the request itself do not count.
func unavailable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
	}
	// MOVED and ASK arrive here after the client has followed as many redirections as it may.
	for _, prefix := range []string{"CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "OOM", "NOREPLICAS", "MISCONF", "MOVED", "ASK"} {
		if strings.HasPrefix(reply.Error(), prefix) {
			return true
		}
	}
	return false
}

// Masters runs work on the masters of a Redis Cluster that answer, within time limits, and returns
// the users for whom the work failed. It remembers which masters could not be reached lately. It is
// safe for concurrent use. Without a cluster there is one master, and only the client's own limits
// apply.
type Masters struct {
	rdb    redisclient.Client
	mu     sync.Mutex
	failed map[string]masterFailure // by address
	serve  map[string]bool          // the masters that served at the last call of Returned
}

// newMasters returns the masters of rdb. All of them are assumed to answer.
func newMasters(rdb redisclient.Client) *Masters { return &Masters{rdb: rdb} }

type masterFailure struct {
	asked time.Time
	err   error
}

// fine reports whether all masters answer, as far as is known.
func (m *Masters) fine() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr, f := range m.failed {
		if time.Since(f.asked) > avoidFor+suspectFor {
			delete(m.failed, addr) // no longer in use
		}
	}
	return len(m.failed) == 0
}

// avoid returns the reason not to ask the master now, or nil. When it is time to ask again, it
// returns nil to one caller.
func (m *Masters) avoid(addr string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, failed := m.failed[addr]
	if !failed {
		return nil
	}
	if time.Since(f.asked) < avoidFor {
		return fmt.Errorf("%s: %w", addr, f.err)
	}
	m.failed[addr] = masterFailure{time.Now(), f.err}
	return nil
}

func (m *Masters) fails(addr string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = map[string]masterFailure{}
	}
	m.failed[addr] = masterFailure{time.Now(), err}
}

func (m *Masters) answers(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failed, addr)
}

// Returned takes the results of a check of all masters, by address; nil means that the master
// serves. It reports whether a master serves now that did not serve at the last call or was unknown
// then. Calls use such a master again at once, even if it could not be reached a moment ago.
func (m *Masters) Returned(answers map[string]error) (returned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	serve := map[string]bool{}
	for addr, err := range answers {
		if err != nil {
			continue
		}
		serve[addr] = true
		if !m.serve[addr] {
			returned = true
			delete(m.failed, addr)
		}
	}
	m.serve = serve
	return returned
}
