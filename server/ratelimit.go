package server

import (
	"context"
	_ "embed"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/account"
	"tideline/graph/exec"
)

//go:embed gcra.lua
var gcraSource string

var gcra = redis.NewScript(gcraSource)

// rate allows burst units at once and perMinute in the long run.
type rate struct{ burst, perMinute int }

// rates are what a user or an address may do.
type rates struct {
	accounts  rate // signUp and logIn, per address
	mutations rate // other mutations, per user; per address for who is not signed in
	cost      rate // of all operations, the same; an address with many users has sharedCost times as much
}

const (
	// sharedCost is how many users at full speed one address may have.
	sharedCost = 5
	// leastCost is what an operation counts that asks for next to nothing, or is
	// refused: it had to be read, checked and answered.
	leastCost = 100
	// leases is into how many parts a bucket of cost is divided. A process takes a
	// part at a time, so that most operations need not ask Redis. A user can lose
	// one part for each process that serves them, and no more.
	leases = 40
	// maxLeases is how many parts a process holds; then it forgets them all.
	maxLeases = 10_000
)

// limitTimeout is how long an operation waits in all for a Redis that does not
// answer.
const limitTimeout = 250 * time.Millisecond

// limiter holds what all processes together let a user or an address do. It
// fails open: without Redis nothing is limited, and the log says so.
type limiter struct {
	rdb   redis.UniversalClient
	log   *slog.Logger
	rates rates

	mu     sync.Mutex
	leased map[string]int // cost taken from Redis and not yet used, by bucket
}

func newLimiter(rdb redis.UniversalClient, log *slog.Logger, r rates) *limiter {
	return &limiter{rdb: rdb, log: log, rates: r, leased: make(map[string]int)}
}

// demand is what one operation takes from the buckets.
type demand struct{ accounts, mutations, cost int }

// demandOf counts the root fields of a mutation one by one: a document full of
// log-ins is no way around.
func demandOf(o *exec.Operation) demand {
	d := demand{cost: max(o.Cost(), leastCost)}
	if o.Kind() != ast.Mutation {
		return d
	}
	for _, name := range o.RootFields() {
		if isAccountField(name) {
			d.accounts++
		} else {
			d.mutations++
		}
	}
	return d
}

func isAccountField(name string) bool { return name == "signUp" || name == "logIn" }

// allow takes what an operation asks for. Its error, if any, is the refusal for
// the client. A nil limiter allows everything.
func (l *limiter) allow(ctx context.Context, v account.Viewer, address string, d demand) *gqlerror.Error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := l.take(ctx, "account:{"+address+"}", l.rates.accounts, d.accounts); err != nil {
		return err
	}
	who := "address:{" + address + "}"
	if v.ID != 0 {
		who = "user:{" + strconv.FormatInt(v.ID, 10) + "}"
		r := l.rates.cost
		if err := l.spend(ctx, "shared:{"+address+"}", rate{r.burst * sharedCost, r.perMinute * sharedCost}, d.cost); err != nil {
			return err
		}
	}
	if err := l.take(ctx, "mutation:"+who, l.rates.mutations, d.mutations); err != nil {
		return err
	}
	return l.spend(ctx, "cost:"+who, l.rates.cost, d.cost)
}

// spend is take for a bucket that is asked often.
func (l *limiter) spend(ctx context.Context, bucket string, r rate, n int) *gqlerror.Error {
	l.mu.Lock()
	held := l.leased[bucket]
	if held >= n {
		l.leased[bucket] = held - n
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	part := max(n, r.burst/leases)
	if err := l.take(ctx, bucket, r, part); err != nil {
		if part == n {
			return err
		}
		return l.take(ctx, bucket, r, n) // the last of it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leased) >= maxLeases {
		clear(l.leased)
	}
	l.leased[bucket] += part - n
	return nil
}

func (l *limiter) take(ctx context.Context, bucket string, r rate, n int) *gqlerror.Error {
	if n == 0 {
		return nil
	}
	if n > r.burst {
		err := gqlerror.Errorf("One request may not do this %d times; %d is the most.", n, r.burst)
		err.Extensions = map[string]any{"code": codeRateLimited}
		return err
	}
	if ctx.Err() != nil {
		return nil // Redis did not answer the question before
	}
	interval := max(time.Minute/time.Duration(r.perMinute), time.Microsecond)
	wait, err := gcra.Run(ctx, l.rdb, []string{"limit:" + bucket}, interval.Microseconds(), r.burst, n).Int64()
	if err != nil {
		l.log.WarnContext(ctx, "rate limit not checked", "err", err)
		return nil
	}
	if wait == 0 {
		return nil
	}
	return tooMany(int(math.Ceil(float64(wait)/1e6)), "Too many requests.")
}

// tooMany is the refusal of what will be allowed in so many seconds.
func tooMany(seconds int, why string) *gqlerror.Error {
	refusal := gqlerror.Errorf("%s Try again in %d seconds.", why, seconds)
	refusal.Extensions = map[string]any{"code": codeRateLimited, "retryAfter": seconds}
	return refusal
}
