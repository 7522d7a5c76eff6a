package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/internal/redisclient"
	"tideline/internal/trace"
)

// chunkSize bounds the recipients in one look-up and in one message (about
// 24 KB), so that no single command blocks Redis for long.
const chunkSize = 3000

// Publisher sends events to users in whichever process they are connected. It
// needs no hub. Its only state is the time of the last failed look-up. It is safe
// for concurrent use.
type Publisher struct {
	rdb     redisclient.Client
	sharded bool
	failed  atomic.Int64 // when a look-up last failed, in Unix nanoseconds
}

// NewPublisher returns a publisher. With sharded, it uses the sharded pub/sub of
// Redis Cluster, which does not send messages to all nodes; hubs must be configured
// alike. The client must read from masters: a replica may not yet know a user who
// has just connected.
func NewPublisher(rdb redisclient.Client, sharded bool) *Publisher {
	return &Publisher{rdb: rdb, sharded: sharded}
}

// Publish sends ev to the users that have a subscription in any process. users are
// positive ids in any order; repeated ids count once. Publish returns how many users
// it addressed; a user with subscriptions in two processes counts twice. An addressed
// user may still miss the event, and then receives a [Resync].
//
// On an error some users may have been reached. Publishing again reaches them twice.
//
// Cost: one round trip, then two per 3,000 users: a look-up of each user in each
// process that holds connections, and one message to each process that holds any of
// them.
func (p *Publisher) Publish(ctx context.Context, ev Event, users []int64) (reached int, err error) {
	if err := ev.validate(); err != nil {
		return 0, fmt.Errorf("live: publish: %w", err)
	}
	if len(users) == 0 {
		return 0, nil
	}
	users = slices.Clone(users)
	slices.Sort(users)
	users = slices.Compact(users)
	if users[0] <= 0 {
		return 0, fmt.Errorf("live: publish: %d is not a user id", users[0])
	}
	ctx, span := trace.Send(ctx, "publish", ev.Kind.String())
	defer func() {
		span.Int("tideline.users", int64(len(users)))
		span.Int("tideline.reached", int64(reached))
		span.End(err)
	}()
	if carried := trace.Carried(ctx); carried != "" && ev.carries() {
		ev.Reason += " " + carried
	}
	listing, cancel := p.limited(ctx)
	list := p.rdb.Pipeline() // a pipeline, so that concurrent small fan-outs can send it together
	listed := list.ZRange(listing, procsKey, 0, -1)
	_, _ = list.Exec(listing)
	procs, err := listed.Result()
	cancel()
	if err != nil {
		return 0, fmt.Errorf("live: publish: list processes: %w", err)
	}
	if len(procs) == 0 {
		return 0, nil
	}
	// Part of a cluster may be down: go on with the other users.
	var errs []error
	for chunk := range slices.Chunk(users, chunkSize) {
		n, err := p.publishChunk(ctx, procs, ev, chunk)
		reached += n
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return reached, errors.Join(errs...)
}

func (p *Publisher) publishChunk(ctx context.Context, procs []string, ev Event, users []int64) (reached int, err error) {
	members := make([]any, len(users))
	for i, user := range users {
		members[i] = user
	}
	lookups := p.lookUp(ctx, procs, members)

	pipe := p.rdb.Pipeline()
	var sizes []int
	var sent []*redis.IntCmd
	recipients := make([]int64, 0, len(users))
	for i, proc := range procs {
		held, lookupErr := lookups[i].Result()
		if lookupErr != nil {
			err = fmt.Errorf("live: publish: look up users of a process: %w", lookupErr)
			continue
		}
		recipients = recipients[:0]
		for j, here := range held {
			if here {
				recipients = append(recipients, users[j])
			}
		}
		if len(recipients) == 0 {
			continue
		}
		msg := encode(ev, recipients)
		if p.sharded {
			sent = append(sent, pipe.SPublish(ctx, channel(proc), msg))
		} else {
			sent = append(sent, pipe.Publish(ctx, channel(proc), msg))
		}
		sizes = append(sizes, len(recipients))
	}
	if len(sent) == 0 {
		return 0, err
	}
	limited, cancel := p.limited(ctx)
	defer cancel()
	_, _ = pipe.Exec(limited)
	for i, cmd := range sent {
		if sendErr := cmd.Err(); sendErr != nil {
			err = fmt.Errorf("live: publish: send to a process: %w", sendErr)
			continue
		}
		reached += sizes[i]
	}
	return reached, err
}

const (
	// answerLimit is how long a look-up or a send waits for a cluster.
	answerLimit = 2 * time.Second
	// apartFor is how long each process is looked up separately after a look-up failed.
	apartFor = 30 * time.Second
)

// lookUp looks up which of the users each process holds. In a cluster, after a look-up has failed, it
// sends a separate command for each process, so that a master that does not answer affects only the
// processes whose users it stores. In a common pipeline its error would affect all of them.
func (p *Publisher) lookUp(ctx context.Context, procs []string, users []any) []*redis.BoolSliceCmd {
	lookups := make([]*redis.BoolSliceCmd, len(procs))
	if !redisclient.Sharded(p.rdb) || time.Since(time.Unix(0, p.failed.Load())) > apartFor {
		limited, cancel := p.limited(ctx)
		pipe := p.rdb.Pipeline()
		for i, proc := range procs {
			lookups[i] = pipe.SMIsMember(limited, usersKey(proc), users...)
		}
		_, err := pipe.Exec(limited)
		cancel()
		if err == nil || !redisclient.Sharded(p.rdb) || ctx.Err() != nil {
			return lookups // each command has its own error
		}
		p.failed.Store(time.Now().UnixNano())
	}
	var asking sync.WaitGroup
	for i, proc := range procs {
		asking.Go(func() {
			ctx, cancel := p.limited(ctx)
			defer cancel()
			if lookups[i] = p.rdb.SMIsMember(ctx, usersKey(proc), users...); lookups[i].Err() != nil {
				p.failed.Store(time.Now().UnixNano())
			}
		})
	}
	asking.Wait()
	return lookups
}

// limited returns the context for a look-up or a send. In a cluster it bounds the wait by answerLimit,
// because the other masters work while one does not answer. It sets no limit for a single server.
func (p *Publisher) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if redisclient.Sharded(p.rdb) {
		return context.WithTimeout(ctx, answerLimit)
	}
	return ctx, func() {}
}
