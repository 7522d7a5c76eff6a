package limit

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed gcra.lua
var gcraSource string

var gcra = redis.NewScript(gcraSource)

// rate allows burst units at once and perMinute in the long run.
type rate struct{ burst, perMinute int }

// rates are those of one user or of one address.
type rates struct {
	accounts  rate // per address
	wrong     rate // credentials, per address
	mutations rate // per user, or per address for clients that are not signed in
	cost      rate // the same; in addition, all users at one address share sharedCost times as much

	keyMutations, keyCost rate // per API key; nothing of the above is taken

	newFor  time.Duration // how long an account is new
	newHour int           // mutations an hour of a new one
}

func (c Config) rates() rates {
	return rates{
		accounts:  rate{2 * c.RateAccounts, c.RateAccounts},
		wrong:     rate{2 * c.RateCredentials, c.RateCredentials},
		mutations: rate{max(c.RateMutations/5, 1), c.RateMutations},
		cost:      rate{max(c.RateCost/3, c.MaxCost, LeastCost), c.RateCost},

		keyMutations: rate{max(c.RateKeyMutations/5, 1), c.RateKeyMutations},
		keyCost:      rate{max(c.RateKeyCost/3, c.MaxCost, LeastCost), c.RateKeyCost},

		newFor: c.NewAccountFor, newHour: c.RateNewAccount,
	}
}

// LeastCost is what an operation costs at least, also one that is refused: it had
// to be read, checked and answered.
const LeastCost = 100

const (
	// sharedCost is how many users at full speed one address may have.
	sharedCost = 5
	// leases is into how many parts a bucket of cost is divided. A process takes a
	// part at a time, so that it need not ask Redis for most operations. A user can
	// lose one part for each process that serves them, and no more.
	leases = 40
	// maxLeased is of how many buckets a process keeps a part. When there are more
	// it forgets them all.
	maxLeased = 10_000
	// costAtOnce is the cost of what a user, or an address without a user, has executed
	// at a time by a process: one of the largest operations, or about twenty pages. The
	// rest waits, for a budget saved up over a minute must not take all connections to
	// SQL in one second.
	costAtOnce = 10_000
	// keyCostAtOnce is the same for an API key, by which one server acts for many users.
	keyCostAtOnce = 150_000
	// rateTimeout is how long an operation waits in all for a Redis that does not
	// answer.
	rateTimeout = 250 * time.Millisecond
)

// rateLimiter holds what all processes together let a user or an address do.
type rateLimiter struct {
	rdb   redis.UniversalClient
	log   *slog.Logger
	rates rates
	now   func() time.Time

	attempts lines // to look credentials up
	turns    lines // to have operations executed

	mu       sync.Mutex
	leased   map[string]int     // cost taken from Redis and not yet used, by bucket
	suspects map[string]suspect // by address
}

func newRateLimiter(rdb redis.UniversalClient, log *slog.Logger, r rates) *rateLimiter {
	return &rateLimiter{rdb: rdb, log: log, rates: r, leased: make(map[string]int), suspects: make(map[string]suspect), now: time.Now}
}

// Demand is what one operation takes: how many accounts it makes or logs in to,
// how many other mutations it has, and its cost, which is LeastCost or more.
type Demand struct{ Accounts, Mutations, Cost int }

// Spend takes the cost of an event of the client's subscriptions from what the user, or the
// API key, may spend, on whatever connection and process.
//
// Cost: as Allow without accounts and mutations.
func (l *Limits) Spend(ctx context.Context, c Client, cost int) *Refusal {
	if l.rates == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	bucket, r := l.rates.spends(c)
	return l.rates.spend(ctx, "cost:"+bucket, r, cost)
}

// spends names the client, and says at which rate it may spend cost.
func (l *rateLimiter) spends(c Client) (string, rate) {
	switch {
	case c.Key != 0:
		return "key:{" + strconv.FormatInt(c.Key, 10) + "}", l.rates.keyCost
	case c.User != 0:
		return "user:{" + strconv.FormatInt(c.User, 10) + "}", l.rates.cost
	}
	return "address:{" + c.Address + "}", l.rates.cost
}

// Allow takes what an operation of the client demands. Where several rates are
// demanded and a later one refuses, the earlier ones stay taken.
//
// Cost: a round trip to Redis for each of accounts and mutations that is demanded,
// and now and then two for cost. Up to a quarter of a second while Redis does not
// answer.
func (l *Limits) Allow(ctx context.Context, c Client, d Demand) *Refusal {
	if l.rates == nil {
		return nil
	}
	return l.rates.allow(ctx, c, d)
}

func (l *rateLimiter) allow(ctx context.Context, c Client, d Demand) *Refusal {
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	client, costs := l.spends(c)
	if c.Key != 0 {
		if refusal := l.take(ctx, "mutation:"+client, l.rates.keyMutations, d.Accounts+d.Mutations); refusal != nil {
			return refusal
		}
		return l.spend(ctx, "cost:"+client, costs, d.Cost)
	}
	if refusal := l.take(ctx, "account:{"+c.Address+"}", l.rates.accounts, d.Accounts); refusal != nil {
		return refusal
	}
	if c.User != 0 {
		if refusal := l.spend(ctx, "shared:{"+c.Address+"}", rate{costs.burst * sharedCost, costs.perMinute * sharedCost}, d.Cost); refusal != nil {
			return refusal
		}
	}
	if c.User != 0 && time.Since(c.Since) < l.rates.newFor {
		if refusal := l.takeEvery(ctx, "new:"+client, time.Hour/time.Duration(l.rates.newHour), max(l.rates.newHour/5, 1), d.Mutations); refusal != nil {
			refusal.Message = "A new account may not do more than this. " + refusal.Message
			return refusal
		}
	}
	if refusal := l.take(ctx, "mutation:"+client, l.rates.mutations, d.Mutations); refusal != nil {
		return refusal
	}
	return l.spend(ctx, "cost:"+client, costs, d.Cost)
}

// InTurn waits until the client has room for an operation of the cost, and calls do. It bounds
// the cost that this process executes for one client at the same time; other clients do not wait
// for it. ok is false when ctx ends first.
//
// Cost: constant, no round trip.
func (l *Limits) InTurn(ctx context.Context, c Client, cost int, do func()) (ok bool) {
	if l.rates == nil {
		do()
		return true
	}
	room := int64(costAtOnce)
	if c.Key != 0 {
		room = keyCostAtOnce
	}
	client, _ := l.rates.spends(c)
	leave, ok := l.rates.turns.enter(ctx, client, room, int64(cost))
	if !ok {
		return false
	}
	defer leave()
	do()
	return true
}

// spend is take for a bucket that is asked often: it takes a part of the bucket at
// once, and later calls use that up.
func (l *rateLimiter) spend(ctx context.Context, bucket string, r rate, n int) *Refusal {
	l.mu.Lock()
	left := l.leased[bucket]
	if left >= n {
		l.leased[bucket] = left - n
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	part := max(n, r.burst/leases)
	if refusal := l.take(ctx, bucket, r, part); refusal != nil {
		if part == n {
			return refusal
		}
		return l.take(ctx, bucket, r, n) // the bucket has less than a part left
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leased) >= maxLeased {
		clear(l.leased)
	}
	l.leased[bucket] += part - n
	return nil
}

// take takes n units out of the bucket. It takes none, and refuses nothing, when
// Redis does not answer.
func (l *rateLimiter) take(ctx context.Context, bucket string, r rate, n int) *Refusal {
	return l.takeEvery(ctx, bucket, max(time.Minute/time.Duration(r.perMinute), time.Microsecond), r.burst, n)
}

// takeEvery is take for a bucket into which a unit comes back after each interval.
func (l *rateLimiter) takeEvery(ctx context.Context, bucket string, interval time.Duration, burst, n int) *Refusal {
	if n == 0 {
		return nil
	}
	if n > burst {
		return &Refusal{Message: fmt.Sprintf("One request may not do this %d times; %d is the most.", n, burst)}
	}
	if ctx.Err() != nil {
		return nil // Redis has not answered the question before
	}
	wait, err := gcra.Run(ctx, l.rdb, []string{"limit:" + bucket}, interval.Microseconds(), burst, n).Int64()
	if err != nil {
		l.log.WarnContext(ctx, "rate limit not checked", "error", err)
		return nil
	}
	if wait == 0 {
		return nil
	}
	return tooMany(time.Duration(wait) * time.Microsecond)
}

// tooMany refuses what is allowed again after the wait.
func tooMany(wait time.Duration) *Refusal {
	seconds := int(math.Ceil(wait.Seconds()))
	again := "a second"
	if seconds > 1 {
		again = fmt.Sprintf("%d seconds", seconds)
	}
	return &Refusal{Message: "Too many requests. Try again in " + again + ".", RetryAfter: seconds}
}
