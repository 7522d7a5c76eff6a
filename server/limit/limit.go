// Package limit refuses clients that take too much.
//
// What holds:
//
//   - The rates of a user and of an address are shared by all processes, which
//     count in Redis. Without Redis nothing is refused for its rate, and the log
//     says so.
//   - The quotas of a user and of an address are those of one process: each counts
//     the connections, sockets and subscriptions that are open at itself.
//   - A claim about a client's address counts only when a trusted proxy makes it.
//
// The package knows no protocol and no product. Its caller says what an operation
// costs, and puts a [Refusal] into the words of its protocol.
package limit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxNewAccountFor bounds Config.NewAccountFor.
const MaxNewAccountFor = 2160 * time.Hour

// Config says how much a client may take. Fields without a default are required.
type Config struct {
	// Off lifts every limit of a user and of an address. The bound on all
	// connections of the process together stays.
	Off bool

	// RateAccounts is how many sign-ups and log-ins a minute one address may make in
	// the long run, 1 to 60,000. It may make twice as many at once.
	RateAccounts int
	// RateCredentials is how many wrong credentials a minute one address may show in the
	// long run, 1 to 60,000. It may show twice as many at once.
	RateCredentials int
	// RateMutations is how many other mutations a minute one user may make in the
	// long run, 1 to 60,000: a fifth of them at once. Clients that are not signed in
	// share the rate of one user per address.
	RateMutations int
	// RateCost is the cost a minute of one user's operations in the long run, 1,000
	// to 10,000,000: a third of it at once. Clients that are not signed in share
	// the rate of one user per address.
	RateCost int
	// RateKeyMutations and RateKeyCost are as RateMutations and RateCost for one API
	// key, whomever it acts for and from whatever address: 1 to 60,000 mutations, sign-ups
	// and log-ins among them, and a cost of 1,000 to 60,000,000 a minute.
	RateKeyMutations int
	RateKeyCost      int
	// NewAccountFor is how long an account is new, 0 to MaxNewAccountFor. RateNewAccount is
	// how many mutations an hour a new one may make, 1 to 60,000, a fifth of them at once,
	// whatever RateMutations allows. 0: no account is new.
	NewAccountFor  time.Duration
	RateNewAccount int
	// MaxCost is the cost of the dearest operation that is ever asked for, 0 or
	// more. It may always be asked for at once, whatever RateCost is.
	MaxCost int

	// How many sockets and streams of events a user and an address may have open at
	// once in this process, and how many subscriptions. 1 to 1,000,000.
	MaxSocketsPerUser          int
	MaxSocketsPerAddress       int
	MaxSubscriptionsPerUser    int
	MaxSubscriptionsPerAddress int
	// MaxConnections is how many connections that are no sockets or streams this
	// process has open at once; an address may have three quarters of them. Defaults
	// to 4,096: with a header, a small body and buffers each, they take a few hundred
	// megabytes.
	MaxConnections int

	// TrustedProxies are the addresses and networks of the proxies whose claim about
	// a client's address is taken. Defaults to none.
	TrustedProxies []string
	// ProxyHeader is the header in which these proxies make it: x-forwarded-for or
	// forwarded. Defaults to x-forwarded-for.
	ProxyHeader string

	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Validate says which fields are not allowed, and what is. Each line of the error
// begins with the name of the field.
func (c Config) Validate() error {
	var errs []error
	for _, field := range []struct {
		name               string
		value, least, most int
	}{
		{"RateAccounts", c.RateAccounts, 1, 60_000},
		{"RateCredentials", c.RateCredentials, 1, 60_000},
		{"RateMutations", c.RateMutations, 1, 60_000},
		{"RateCost", c.RateCost, 1000, 10_000_000},
		{"RateKeyMutations", c.RateKeyMutations, 1, 60_000},
		{"RateKeyCost", c.RateKeyCost, 1000, 60_000_000},
		{"RateNewAccount", c.RateNewAccount, 1, 60_000},
		{"MaxSocketsPerUser", c.MaxSocketsPerUser, 1, 1_000_000},
		{"MaxSocketsPerAddress", c.MaxSocketsPerAddress, 1, 1_000_000},
		{"MaxSubscriptionsPerUser", c.MaxSubscriptionsPerUser, 1, 1_000_000},
		{"MaxSubscriptionsPerAddress", c.MaxSubscriptionsPerAddress, 1, 1_000_000},
	} {
		if field.value < field.least || field.value > field.most {
			errs = append(errs, fmt.Errorf("%s is %d: it must be %d to %d", field.name, field.value, field.least, field.most))
		}
	}
	if c.NewAccountFor < 0 || c.NewAccountFor > MaxNewAccountFor {
		errs = append(errs, fmt.Errorf("NewAccountFor is %v: it must be 0s to %v", c.NewAccountFor, MaxNewAccountFor))
	}
	_, err := newProxies(c.TrustedProxies, c.ProxyHeader)
	return errors.Join(append(errs, err)...)
}

// Limits hold clients to a Config. The zero Limits refuse no client; they are safe
// for concurrent use.
type Limits struct {
	rates   *rateLimiter // nil: any rate
	proxies proxies
	// maxConnections bounds the listener; 0: the default.
	maxConnections int

	// A nil quota bounds nothing.
	userSockets, addressSockets             *quota
	userSubscriptions, addressSubscriptions *quota
	addressConnections                      *quota
}

// New returns the limits of a process that shares the Redis with the others. Its
// error is that of [Config.Validate].
func New(rdb redis.UniversalClient, c Config) (*Limits, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	proxies, err := newProxies(c.TrustedProxies, c.ProxyHeader)
	l := &Limits{proxies: proxies, maxConnections: c.MaxConnections}
	if err != nil || c.Off {
		return l, err
	}
	l.rates = newRateLimiter(rdb, c.Logger, c.rates())
	l.userSockets, l.addressSockets = newQuota(c.MaxSocketsPerUser), newQuota(c.MaxSocketsPerAddress)
	l.userSubscriptions, l.addressSubscriptions = newQuota(c.MaxSubscriptionsPerUser), newQuota(c.MaxSubscriptionsPerAddress)
	l.addressConnections = newQuota(cmp.Or(c.MaxConnections, defaultConnections) * 3 / 4)
	return l, nil
}

// Client is the client that asks for something.
type Client struct {
	Key  int64 // the API key by which it comes, 0: none
	User int64 // 0: not signed in
	// Since is when the user's account was made.
	Since   time.Time
	Address string // as of [AddressOf]
}

// Busy refuses what the process has no room for.
var Busy = &Refusal{Message: "The server is busy. Try again in a second.", RetryAfter: 1}

// Refusal says why a client does not get what it asks for.
type Refusal struct {
	Message string
	// RetryAfter is in how many seconds the same would be allowed, 0 when waiting
	// does not help.
	RetryAfter int
	// Limit is the quota that is used up: "sockets" or "subscriptions". Allowed is
	// its size. They are zero for a refusal because of a rate.
	Limit   string
	Allowed int
}

// Error returns the message for the client.
func (r *Refusal) Error() string { return r.Message }
