package live

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"tideline/internal/redisclient"
)

const (
	procsKey = "live:procs"

	// presenceChunk bounds the members of one SADD or SREM.
	presenceChunk = 1000

	// self is the member of the set of users that stands for the process, so that
	// the set exists even if the process holds no user. A set without it was lost
	// and begun anew. No user has this id.
	self = 0
)

func channel(proc string) string  { return "live:{p" + proc + "}" }
func usersKey(proc string) string { return "live:{p" + proc + "}:users" }

//go:embed beat.lua
var beatSource string

var beatScript = redis.NewScript(beatSource)

// presence writes the entries of one process in Redis. Its methods must not be
// called concurrently.
type presence struct {
	rdb  redisclient.Client
	proc string
	ttl  time.Duration
}

// refresh extends the life of the process's entries. intact reports whether they were
// complete: the process is listed, and its set has as many users as held.
func (p *presence) refresh(ctx context.Context, held int) (intact bool, err error) {
	pipe := p.rdb.Pipeline()
	alive := pipe.PExpire(ctx, usersKey(p.proc), p.ttl)
	marked := pipe.SIsMember(ctx, usersKey(p.proc), self)
	size := pipe.SCard(ctx, usersKey(p.proc))
	if _, err := pipe.Exec(ctx); err != nil {
		return false, fmt.Errorf("refresh presence: %w", err)
	}
	known, err := beatScript.Run(ctx, p.rdb, []string{procsKey}, p.proc, p.ttl.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("refresh process: %w", err)
	}
	return known && alive.Val() && marked.Val() && size.Val() == int64(held)+1, nil
}

// rewrite replaces the whole set of users atomically.
func (p *presence) rewrite(ctx context.Context, users []int64) error {
	pipe := p.rdb.TxPipeline()
	pipe.Del(ctx, usersKey(p.proc))
	pipe.SAdd(ctx, usersKey(p.proc), self)
	each(users, func(members []any) { pipe.SAdd(ctx, usersKey(p.proc), members...) })
	pipe.PExpire(ctx, usersKey(p.proc), p.ttl)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("write presence: %w", err)
	}
	return nil
}

// change adds and removes users. It is idempotent. After an error the set may have
// changed in part.
func (p *presence) change(ctx context.Context, add, remove []int64) error {
	if len(add)+len(remove) == 0 {
		return nil
	}
	pipe := p.rdb.Pipeline()
	each(add, func(members []any) { pipe.SAdd(ctx, usersKey(p.proc), members...) })
	each(remove, func(members []any) { pipe.SRem(ctx, usersKey(p.proc), members...) })
	// If the set was wiped a moment ago, SADD has created it anew, without an expiry.
	pipe.PExpire(ctx, usersKey(p.proc), p.ttl)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("change presence: %w", err)
	}
	return nil
}

// remove deletes the process's entries from Redis.
func (p *presence) remove(ctx context.Context) error {
	pipe := p.rdb.Pipeline()
	pipe.ZRem(ctx, procsKey, p.proc)
	pipe.Del(ctx, usersKey(p.proc))
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("remove presence: %w", err)
	}
	return nil
}

// each calls add with chunks of the users, as arguments of a Redis command.
func each(users []int64, add func(members []any)) {
	for chunk := range slices.Chunk(users, presenceChunk) {
		members := make([]any, len(chunk))
		for i, user := range chunk {
			members[i] = user
		}
		add(members)
	}
}
