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
)

const (
	// pipelineLimit is the longest that a pipeline to a cluster waits for all masters,
	// masterLimit for one of them after that.
	pipelineLimit = 2 * time.Second
	masterLimit   = time.Second
	// avoidFor is how long a master that could not be reached is not asked again.
	avoidFor = 5 * time.Second
	// suspectFor is how long after that each master has pipelines of its own.
	suspectFor = 30 * time.Second
)

// Unreached is the error of a call that was done for some users only: the masters that
// have the keys of the others cannot be reached. Only a cluster has others.
type Unreached struct {
	Users []int64 // in any order, perhaps with repetitions
	Err   error
}

func (u *Unreached) Error() string {
	return fmt.Sprintf("%d users not reached: %v", len(u.Users), u.Err)
}
func (u *Unreached) Unwrap() error { return u.Err }

// unreachedUsers collects the users of several calls that were not reached. It is safe for
// concurrent use. The zero unreachedUsers is empty.
type unreachedUsers struct {
	mu    sync.Mutex
	users []int64
	err   error
}

// add returns err, or nil if err is an Unreached, which it keeps.
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

// all returns what was added as one error, nil if that was nothing.
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
	_, sharded := m.rdb.(*redis.ClusterClient)
	return sharded
}

// forUsers calls do for the users whose keys these are. If a master of a cluster cannot
// be reached, it calls do once more for the users of each master. The error is then an
// Unreached with the users of those that fail. A part may be done twice.
//
// Cost: none while all masters answer. Otherwise the waits above, and a master that
// was found not to answer is asked once in 5 s.
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

// Try calls do, which touches a few keys, within a limit of time. The error is an
// Unreached without users if a part of a cluster cannot be reached.
func (m *Masters) Try(ctx context.Context, do func(ctx context.Context) error) error {
	if !m.sharded() {
		return do(ctx)
	}
	return m.Tolerate(ctx, within(ctx, pipelineLimit, do))
}

// Tolerate returns err if it is nil, is an Unreached, or has another cause than a part of
// a cluster that cannot be reached. Otherwise it returns an Unreached without users that
// wraps err.
func (m *Masters) Tolerate(ctx context.Context, err error) error {
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

// unavailable reports whether err is that of a server that does not answer, or cannot
// serve now, and not of the caller or of what was asked.
func unavailable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed)
	}
	// MOVED and ASK come here after the client has followed as many as it follows.
	for _, prefix := range []string{"CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "OOM", "NOREPLICAS", "MISCONF", "MOVED", "ASK"} {
		if strings.HasPrefix(reply.Error(), prefix) {
			return true
		}
	}
	return false
}

// Masters gets work done on the masters of a Redis Cluster that answer, within limits of time,
// and names the users for whom the work was not done. It knows which masters could not be
// reached lately. It is safe for concurrent use. Anything but a cluster has one master, and limits of its own.
type Masters struct {
	rdb    redis.UniversalClient
	mu     sync.Mutex
	failed map[string]masterFailure // by address
	serve  map[string]bool          // the masters that served at the last call of Returned
}

// newMasters returns the masters of rdb, all of which are taken to answer.
func newMasters(rdb redis.UniversalClient) *Masters { return &Masters{rdb: rdb} }

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
			delete(m.failed, addr) // nobody asks it any more
		}
	}
	return len(m.failed) == 0
}

// avoid returns why the master should not be asked now. It returns nil to one caller
// when it is time to ask again.
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

// Returned takes what each master answered, by address, to a check that all masters were
// asked just now; nil means that the master serves. It reports whether a master serves
// that did not at the last call, or was not known then. Such a master is asked again at
// once, even if it could not be reached a moment ago.
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
