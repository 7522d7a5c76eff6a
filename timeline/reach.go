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

// unreached collects the users of several calls that were not reached. It is safe for
// concurrent use.
type unreached struct {
	mu    sync.Mutex
	users []int64
	err   error
}

// add returns err, or nil if err is an Unreached, which it keeps.
func (u *unreached) add(err error) error {
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
func (u *unreached) all() error {
	if u.err == nil {
		return nil
	}
	return &Unreached{u.users, u.err}
}

// reach calls do for the users whose keys these are. If a master of a cluster cannot
// be reached, it calls do once more for the users of each master. The error is then an
// Unreached with the users of those that fail. A part may be done twice.
//
// Cost: none while all masters answer. Otherwise the waits above, and a master that
// was found not to answer is asked once in 5 s.
func (s *Store) reach(ctx context.Context, users []int64, key func(user int64) string, do func(ctx context.Context, users []int64) error) error {
	cluster, sharded := s.rdb.(*redis.ClusterClient)
	if !sharded {
		return do(ctx, users)
	}
	if s.masters.fine() {
		err := within(ctx, pipelineLimit, func(ctx context.Context) error { return do(ctx, users) })
		if !s.unavailable(ctx, err) {
			return err
		}
	}
	var left unreached
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
			if err := s.masters.avoid(addr); err != nil {
				return left.add(&Unreached{part, err})
			}
			err := within(ctx, masterLimit, func(ctx context.Context) error { return do(ctx, part) })
			if s.unavailable(ctx, err) {
				s.masters.fails(addr, err)
				return left.add(&Unreached{part, err})
			}
			if err == nil {
				s.masters.answers(addr)
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
func (s *Store) Try(ctx context.Context, do func(ctx context.Context) error) error {
	if _, sharded := s.rdb.(*redis.ClusterClient); !sharded {
		return do(ctx)
	}
	return s.Tolerate(ctx, within(ctx, pipelineLimit, do))
}

// Tolerate returns err, as an Unreached without users if it is that of a part of a
// cluster that cannot be reached.
func (s *Store) Tolerate(ctx context.Context, err error) error {
	if _, sharded := s.rdb.(*redis.ClusterClient); sharded && s.unavailable(ctx, err) {
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
func (s *Store) unavailable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout)
	}
	for _, prefix := range []string{"CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "OOM"} {
		if strings.HasPrefix(reply.Error(), prefix) {
			return true
		}
	}
	return false
}

// masters knows the masters of a cluster that could not be reached lately.
type masters struct {
	mu     sync.Mutex
	failed map[string]failure // by address
}

type failure struct {
	asked time.Time
	err   error
}

// fine reports whether all masters answer, as far as is known.
func (m *masters) fine() bool {
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
func (m *masters) avoid(addr string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, failed := m.failed[addr]
	if !failed {
		return nil
	}
	if time.Since(f.asked) < avoidFor {
		return fmt.Errorf("%s: %w", addr, f.err)
	}
	m.failed[addr] = failure{time.Now(), f.err}
	return nil
}

func (m *masters) fails(addr string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = map[string]failure{}
	}
	m.failed[addr] = failure{time.Now(), err}
}

func (m *masters) answers(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failed, addr)
}

// Slots is how many slots a cluster has.
const Slots = 1 << 14

// InboxSlot returns the slot of a cluster that the user's inbox is in.
func InboxSlot(user int64) int {
	tag := string(inbox) + formatID(user)
	crc := uint16(0) // CRC-16/XMODEM, as the specification of Redis Cluster has it
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if carry := crc & 0x8000; carry != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}
