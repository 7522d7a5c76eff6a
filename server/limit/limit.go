// Package limit refuses clients that take too much.
//
// # Invariants
//
//   - The rates of a user and of an address are shared by all processes, which count in Redis. While
//     Redis does not answer, no rate refuses anything, and the log says so.
//   - The quotas of a user and of an address apply to one process: each process counts its own open
//     connections, sockets, subscriptions and downloads.
//   - A header about a client's address counts only if a trusted proxy sent it.
//
// The package knows no protocol and no product. Its caller says what an operation costs, and renders
// a [Refusal] in its protocol.
package limit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tideline/internal/errs"
	"tideline/internal/redisclient"
)

// MaxNewAccountFor bounds Config.NewAccountFor.
const MaxNewAccountFor = 2160 * time.Hour

// Config says how much a client may take. Fields without a default are required.
type Config struct {
	// Off lifts every limit of a user and of an address. The bounds on all connections and all downloads of
	// the process stay.
	Off bool

	// RateAccounts is how many sign-ups and log-ins one address may make per minute in the long run, 1 to
	// 60,000. The burst is twice as many.
	RateAccounts int
	// RateCredentials is how many wrong credentials one address may show per minute in the long run, 1 to
	// 60,000. The burst is twice as many.
	RateCredentials int
	// RateMutations is how many other mutations one user may make per minute in the long run, 1 to 60,000.
	// The burst is a fifth of it. Clients that are not signed in share one user's rate per address.
	RateMutations int
	// RateCost is the cost per minute of one user's operations in the long run, 1,000 to 10,000,000. The
	// burst is a third of it. Clients that are not signed in share one user's rate per address.
	RateCost int
	// RateKeyMutations and RateKeyCost are the same rates for one API key, regardless of the user it acts for
	// and of its address: 1 to 60,000 mutations per minute, including sign-ups and log-ins, and a cost of
	// 1,000 to 60,000,000 per minute.
	RateKeyMutations int
	RateKeyCost      int
	// NewAccountFor is how long an account is new, 0 to MaxNewAccountFor; 0: no account is new.
	// RateNewAccount is how many mutations a new account may make per hour, 1 to 60,000, regardless of
	// RateMutations. The burst is a fifth of it.
	NewAccountFor  time.Duration
	RateNewAccount int
	// MaxCost is the cost of the most expensive operation that callers admit, 0 or more. Such an operation
	// always fits into the burst, regardless of RateCost.
	MaxCost int

	// MaxSocketsPerUser and its siblings bound the sockets and event streams, and the subscriptions, that a
	// user and an address may have open at once in this process. 1 to 1,000,000.
	MaxSocketsPerUser          int
	MaxSocketsPerAddress       int
	MaxSubscriptionsPerUser    int
	MaxSubscriptionsPerAddress int
	// MaxConnections is how many connections this process may have open at once, besides sockets and streams.
	// One address may have three quarters of them. Defaults to 4,096: with a header, a small body and buffers
	// each, they take a few hundred megabytes.
	MaxConnections int

	// TrustedProxies are the addresses and networks of the proxies that may set a client's
	// address. Defaults to none.
	TrustedProxies []string
	// ProxyHeader is the header in which these proxies set it: x-forwarded-for or forwarded.
	// Defaults to x-forwarded-for.
	ProxyHeader string

	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Validate names the fields that are not allowed, and says which values are. Each line of the error
// begins with the name of a field.
func (c Config) Validate() error {
	_, err := newProxies(c.TrustedProxies, c.ProxyHeader)
	return errors.Join(
		errs.Bound("RateAccounts", c.RateAccounts, 1, 60_000),
		errs.Bound("RateCredentials", c.RateCredentials, 1, 60_000),
		errs.Bound("RateMutations", c.RateMutations, 1, 60_000),
		errs.Bound("RateCost", c.RateCost, 1000, 10_000_000),
		errs.Bound("RateKeyMutations", c.RateKeyMutations, 1, 60_000),
		errs.Bound("RateKeyCost", c.RateKeyCost, 1000, 60_000_000),
		errs.Bound("RateNewAccount", c.RateNewAccount, 1, 60_000),
		errs.Bound("MaxSocketsPerUser", c.MaxSocketsPerUser, 1, 1_000_000),
		errs.Bound("MaxSocketsPerAddress", c.MaxSocketsPerAddress, 1, 1_000_000),
		errs.Bound("MaxSubscriptionsPerUser", c.MaxSubscriptionsPerUser, 1, 1_000_000),
		errs.Bound("MaxSubscriptionsPerAddress", c.MaxSubscriptionsPerAddress, 1, 1_000_000),
		errs.Bound("NewAccountFor", c.NewAccountFor, 0, MaxNewAccountFor),
		err,
	)
}

// Limits hold clients to a Config. The zero Limits refuse no client. They are safe for concurrent use.
type Limits struct {
	rates   *rateLimiter // nil: rates are not limited
	proxies proxies
	// maxConnections bounds the listener; 0: the default.
	maxConnections int

	// A nil quota bounds nothing.
	userSockets, addressSockets             *quota
	userSubscriptions, addressSubscriptions *quota
	addressConnections                      *quota
	userDownloads, downloads                *quota
}

// New returns the limits of a process that shares the Redis with the others. It returns
// the error of [Config.Validate].
func New(rdb redisclient.Client, c Config) (*Limits, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	proxies, err := newProxies(c.TrustedProxies, c.ProxyHeader)
	l := &Limits{proxies: proxies, maxConnections: c.MaxConnections, downloads: newQuota(maxDownloads)}
	if err != nil || c.Off {
		return l, err
	}
	l.rates = newRateLimiter(rdb, c.Logger, c.rates())
	l.userSockets, l.addressSockets = newQuota(c.MaxSocketsPerUser), newQuota(c.MaxSocketsPerAddress)
	l.userSubscriptions, l.addressSubscriptions = newQuota(c.MaxSubscriptionsPerUser), newQuota(c.MaxSubscriptionsPerAddress)
	l.userDownloads = newQuota(1)
	l.addressConnections = newQuota(cmp.Or(c.MaxConnections, defaultConnections) * 3 / 4)
	return l, nil
}

// Client identifies who asks for something.
type Client struct {
	Key  int64 // the API key it uses, 0: none
	User int64 // 0: not signed in
	// Since is when the user's account was created.
	Since   time.Time
	Address string // as returned by [AddressOf]
}

// Busy refuses a request for which the process has no capacity.
var Busy = &Refusal{Message: "The server is busy. Try again in a second.", RetryAfter: 1}

// Refusal says why a request is refused.
type Refusal struct {
	Message string
	// RetryAfter is the number of seconds after which the same request would be allowed. It is 0 if waiting
	// does not help.
	RetryAfter int
	// Limit is the quota that is used up: "sockets" or "subscriptions". Allowed is its size. They are zero
	// if a rate refuses the request.
	Limit   string
	Allowed int
}

// Error returns the message for the client.
func (r *Refusal) Error() string { return r.Message }
