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

	"tideline/internal/redisclient"
)

//go:embed gcra.lua
var gcraSource string

var gcra = redis.NewScript(gcraSource)

// rate allows burst units at once and perMinute in the long run.
type rate struct{ burst, perMinute int }

// rates are the rates of a user, an address, an API key and a new account.
type rates struct {
	accounts  rate // per address
	wrong     rate // wrong credentials, per address
	mutations rate // per user, or per address for clients that are not signed in
	cost      rate // as mutations; in addition, all users at one address share sharedCost times as much

	keyMutations, keyCost rate // per API key, instead of all the above

	newFor  time.Duration // how long an account is new
	newHour int           // mutations per hour of a new account
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

// LeastCost is the least cost of an operation, even of a refused one: it had to be
// read, checked and answered.
const LeastCost = 100

const (
	// sharedCost is how many users at full speed one address can have.
	sharedCost = 5
	// leases is the number of parts into which a bucket of cost is divided. A process takes one part
	// at a time, so most operations need no request to Redis. A user can lose at most one part for
	// each process that serves them.
	leases = 40
	// maxLeased is how many buckets a process keeps a part of. Beyond that it forgets them all.
	maxLeased = 10_000
	// costAtOnce bounds the cost that a process executes at a time for one user, or for one address without a
	// user: one of the largest operations, or about twenty pages. Further operations wait. Otherwise a budget
	// saved up over a minute could take all SQL connections within a second.
	costAtOnce = 10_000
	// keyCostAtOnce is the same bound for an API key, with which one server acts for many users.
	keyCostAtOnce = 150_000
	// readsAtOnce bounds the price of the fields that a process reads at a time for one user, or for one
	// address without a user: ten pages, or one search. Others wait. When the 18 searches of one operation
	// ran at once on two processors, the p99 of other clients' pages was 40 ms; one at a time it is 10 ms, as
	// without searches. With the 180 pages of followers of one operation it was 19 ms; ten at a time it is 9.
	readsAtOnce = 500
	// keyReadsAtOnce is the same bound for an API key: 15 times as much, as for the cost.
	keyReadsAtOnce = 7500
	// rateTimeout is how long an operation waits in total for a Redis that does not answer. Then it is
	// allowed: SQL answers without Redis, and a limit that refused everything would turn the loss of a
	// cache into an outage.
	rateTimeout = 250 * time.Millisecond
)

// rateLimiter enforces the rates, which all processes share through Redis.
type rateLimiter struct {
	rdb   redisclient.Client
	log   *slog.Logger
	rates rates
	now   func() time.Time

	attempts lines // look-ups of credentials, by address
	turns    lines // executions of operations, by client
	reads    lines // reads of fields with a price, by client

	mu       sync.Mutex
	leased   map[string]int     // cost taken from Redis and not used yet, by bucket
	suspects map[string]suspect // by address
}

func newRateLimiter(rdb redisclient.Client, log *slog.Logger, r rates) *rateLimiter {
	return &rateLimiter{rdb: rdb, log: log, rates: r, leased: make(map[string]int), suspects: make(map[string]suspect), now: time.Now}
}

// Demand is what one operation takes: the accounts it creates or logs in to, its other mutations, and its
// cost, which is at least LeastCost.
type Demand struct{ Accounts, Mutations, Cost int }

// Spend charges the cost of one subscription event to the user or the API key, across all
// connections and processes.
//
// Cost: the cost of Allow without accounts and mutations.
func (l *Limits) Spend(ctx context.Context, c Client, cost int) *Refusal {
	if l.rates == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	bucket, r := l.rates.spends(c)
	return l.rates.spend(ctx, "cost:"+bucket, r, cost)
}

// spends returns the client's name in bucket names, and its rate of cost.
func (l *rateLimiter) spends(c Client) (string, rate) {
	switch {
	case c.Key != 0:
		return "key:{" + strconv.FormatInt(c.Key, 10) + "}", l.rates.keyCost
	case c.User != 0:
		return "user:{" + strconv.FormatInt(c.User, 10) + "}", l.rates.cost
	}
	return "address:{" + c.Address + "}", l.rates.cost
}

// Allow takes what an operation of the client demands. If a later rate refuses, the earlier ones stay taken.
//
// Cost: one round trip to Redis for accounts and one for mutations, if they are demanded, two for the mutations
// of a new account, and occasionally two for cost. At most a quarter of a second while Redis does not answer.
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
	if c.User != 0 && l.now().Sub(c.Since) < l.rates.newFor {
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

// InTurn waits until the client has room for an operation of the cost, then calls do. It bounds
// the cost that this process executes at once for one client. Other clients do not wait for it.
// ok is false if ctx ends first.
//
// Cost: constant, no round trip.
func (l *Limits) InTurn(ctx context.Context, c Client, cost int, do func()) (ok bool) {
	if l.rates == nil {
		do()
		return true
	}
	return l.rates.inTurn(ctx, &l.rates.turns, c, costAtOnce, keyCostAtOnce, cost, do)
}

// ReadInTurn waits until the client has room for a field with the price, then calls read. ok is false if ctx
// ends first. read must not call ReadInTurn.
//
// Cost: constant, no round trip.
func (l *Limits) ReadInTurn(ctx context.Context, c Client, price int, read func()) (ok bool) {
	if l.rates == nil {
		read()
		return true
	}
	return l.rates.inTurn(ctx, &l.rates.reads, c, readsAtOnce, keyReadsAtOnce, price, read)
}

// inTurn calls do when the client has room for it in its line. The room of an API key is keyRoom.
func (l *rateLimiter) inTurn(ctx context.Context, in *lines, c Client, room, keyRoom int64, weight int, do func()) (ok bool) {
	if c.Key != 0 {
		room = keyRoom
	}
	client, _ := l.spends(c)
	leave, ok := in.enter(ctx, client, room, int64(weight))
	if !ok {
		return false
	}
	defer leave()
	do()
	return true
}

// spend is take for a bucket that is used often. It takes a part of the bucket from Redis, and
// later calls use up the part.
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
		return l.take(ctx, bucket, r, n) // less than a part is left in the bucket
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.leased) >= maxLeased {
		clear(l.leased)
	}
	l.leased[bucket] += part - n
	return nil
}

// take takes n units from the bucket. While Redis does not answer, it takes nothing and allows everything.
func (l *rateLimiter) take(ctx context.Context, bucket string, r rate, n int) *Refusal {
	return l.takeEvery(ctx, bucket, max(time.Minute/time.Duration(r.perMinute), time.Microsecond), r.burst, n)
}

// takeEvery is take for a bucket that regains one unit after each interval.
func (l *rateLimiter) takeEvery(ctx context.Context, bucket string, interval time.Duration, burst, n int) *Refusal {
	if n == 0 {
		return nil
	}
	if n > burst {
		return &Refusal{Message: fmt.Sprintf("One request may do this at most %d times, not %d.", burst, n)}
	}
	if ctx.Err() != nil {
		return nil // an earlier request to Redis has timed out
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

// tooMany returns the refusal of a request that would be allowed after the wait.
func tooMany(wait time.Duration) *Refusal {
	seconds := int(math.Ceil(wait.Seconds()))
	again := "a second"
	if seconds > 1 {
		again = fmt.Sprintf("%d seconds", seconds)
	}
	return &Refusal{Message: "Too many requests. Try again in " + again + ".", RetryAfter: seconds}
}
