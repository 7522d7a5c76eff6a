package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m, func() error { return goleak.Find() }) }

var testRates = rates{
	accounts:  rate{burst: 10, perMinute: 30},
	wrong:     rate{burst: 10, perMinute: 60},
	mutations: rate{burst: 20, perMinute: 600},
	cost:      rate{burst: 40_000, perMinute: 60_000},

	keyMutations: rate{burst: 50, perMinute: 600},
	keyCost:      rate{burst: 80_000, perMinute: 60_000},

	newFor: 24 * time.Hour, newHour: 60,
}

// newLimits returns limits with the testRates, and no quotas.
func newLimits(rdb redisclient.Client) *Limits {
	return &Limits{rates: newRateLimiter(rdb, slog.New(slog.DiscardHandler), testRates)}
}

// newStoppedLimits returns limits on a Redis whose clock stands still, that Redis, and its time.
func newStoppedLimits(t *testing.T) (*Limits, *miniredis.Miniredis, time.Time) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	return newLimits(rdb), server, now
}

func TestMutationsOfAUser(t *testing.T) {
	l, server, now := newStoppedLimits(t)
	alice, bob := int64(1), int64(2)
	post := Demand{Mutations: 1}
	for range testRates.mutations.burst {
		require.Nil(t, l.Allow(t.Context(), Client{User: alice, Address: "a"}, post))
	}
	refusal := l.Allow(t.Context(), Client{User: alice, Address: "b"}, post)
	require.NotNil(t, refusal)
	require.Equal(t, &Refusal{Message: "Too many requests. Try again in a second.", RetryAfter: 1}, refusal)
	require.Nil(t, l.Allow(t.Context(), Client{User: bob, Address: "a"}, post))
	require.Nil(t, l.Allow(t.Context(), Client{User: alice, Address: "a"}, Demand{Cost: 1000}), "reading goes on")

	// One token comes back each tenth of a second.
	server.SetTime(now.Add(100 * time.Millisecond))
	require.Nil(t, l.Allow(t.Context(), Client{User: alice, Address: "a"}, post))
	require.NotNil(t, l.Allow(t.Context(), Client{User: alice, Address: "a"}, post))
}

// A new account may make fewer mutations, from all addresses together; reads are not affected. Nor are requests
// with an API key.
func TestNewAccounts(t *testing.T) {
	l, server, now := newStoppedLimits(t)
	newcomer := Client{User: 1, Address: "a", Since: time.Now().Add(-23 * time.Hour)}
	post := Demand{Mutations: 1}
	for range 12 {
		require.Nil(t, l.Allow(t.Context(), newcomer, post))
	}
	elsewhere := newcomer
	elsewhere.Address = "b"
	refusal := l.Allow(t.Context(), elsewhere, post)
	require.NotNil(t, refusal)
	require.Equal(t, 60, refusal.RetryAfter)
	require.Contains(t, refusal.Message, "A new account")
	require.Nil(t, l.Allow(t.Context(), newcomer, Demand{Cost: 1000}), "reading goes on")
	require.Nil(t, l.Allow(t.Context(), Client{User: 2, Address: "a", Since: time.Now().Add(-25 * time.Hour)}, Demand{Mutations: 20}))
	require.Nil(t, l.Allow(t.Context(), Client{Key: 1, User: 1, Address: "a", Since: newcomer.Since}, Demand{Mutations: 20}))
	server.SetTime(now.Add(time.Minute))
	require.Nil(t, l.Allow(t.Context(), newcomer, post), "one a minute comes back")
	require.NotNil(t, l.Allow(t.Context(), newcomer, post))
}

// A key has its own rates, regardless of the user and the address, and takes nothing from other rates.
func TestRatesOfAKey(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	for i := range testRates.keyMutations.burst / 2 {
		require.Nil(t, l.Allow(t.Context(), Client{Key: 1, User: int64(i % 3), Address: "a"}, Demand{Accounts: 1, Mutations: 1, Cost: LeastCost}))
	}
	require.NotNil(t, l.Allow(t.Context(), Client{Key: 1, Address: "b"}, Demand{Accounts: 1}))
	require.NotNil(t, l.Allow(t.Context(), Client{Key: 1, Address: "b"}, Demand{Cost: 79_000}))
	require.Nil(t, l.Allow(t.Context(), Client{Key: 2, Address: "a"}, Demand{Mutations: 1, Cost: 79_000}))
	for _, c := range []Client{{Address: "a"}, {User: 1, Address: "a"}, {User: 2, Address: "b"}} {
		require.Nil(t, l.Allow(t.Context(), c, Demand{Mutations: testRates.mutations.burst, Cost: 39_000}))
	}
	require.Nil(t, l.Allow(t.Context(), Client{Address: "a"}, Demand{Accounts: testRates.accounts.burst}))
}

func TestAccountsOfAnAddress(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	const anonymous = 0
	require.Nil(t, l.Allow(t.Context(), Client{User: anonymous, Address: "a"}, Demand{Accounts: testRates.accounts.burst}))
	require.NotNil(t, l.Allow(t.Context(), Client{User: anonymous, Address: "a"}, Demand{Accounts: 1}))
	require.NotNil(t, l.Allow(t.Context(), Client{User: 1, Address: "a"}, Demand{Accounts: 1}))
	require.Nil(t, l.Allow(t.Context(), Client{User: anonymous, Address: "b"}, Demand{Accounts: 1}))
	require.Nil(t, l.Allow(t.Context(), Client{User: anonymous, Address: "a"}, Demand{Mutations: 1}))
	refusal := l.Allow(t.Context(), Client{User: anonymous, Address: "c"}, Demand{Accounts: testRates.accounts.burst + 1})
	require.NotNil(t, refusal)
	require.Zero(t, refusal.RetryAfter, "waiting does not help")
}

func TestCostOfAUser(t *testing.T) {
	l, server, now := newStoppedLimits(t)
	const alice = 1
	spend := func(user int64, address string) (spent int) {
		for l.Allow(t.Context(), Client{User: user, Address: address}, Demand{Cost: 300}) == nil {
			spent += 300
		}
		return spent
	}
	require.InDelta(t, testRates.cost.burst, spend(alice, "a"), 1000)
	refusal := l.Allow(t.Context(), Client{User: alice, Address: "a"}, Demand{Cost: 10_000})
	require.NotNil(t, refusal)
	require.InDelta(t, 10, refusal.RetryAfter, 1, "a thousand a second")
	server.SetTime(now.Add(3 * time.Second))
	require.InDelta(t, 3000, spend(alice, "a"), 1000)

	// All signed-in users at an address share a budget of sharedCost users. Those not signed in
	// share one user's.
	all := 0
	for id := range int64(20) {
		all += spend(10+id, "b")
	}
	require.InDelta(t, sharedCost*testRates.cost.burst, all, 10_000)
	require.InDelta(t, testRates.cost.burst, spend(0, "b"), 1000)
}

// Most operations use budget that the process has already taken from Redis.
func TestCostAsksRedisSeldom(t *testing.T) {
	l, server, _ := newStoppedLimits(t)
	before := server.CommandCount()
	for range 100 {
		require.Nil(t, l.Allow(t.Context(), Client{User: 0, Address: "a"}, Demand{Cost: 100}))
	}
	require.Less(t, server.CommandCount()-before, 60) // the commands inside the script count too
	for i := range maxLeased + 10 {
		l.rates.leased[fmt.Sprint(i)] = 0
	}
	require.Nil(t, l.Allow(t.Context(), Client{User: 0, Address: "b"}, Demand{Cost: 100}))
	require.Len(t, l.rates.leased, 1, "forgotten")
}

// The script works on every kind of Redis.
func TestLimitOnEveryRedis(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		l := newLimits(rdb)
		logIns := Demand{Accounts: testRates.accounts.burst, Cost: LeastCost}
		require.Nil(t, l.Allow(t.Context(), Client{User: 0, Address: "a"}, logIns))
		refusal := l.Allow(t.Context(), Client{User: 0, Address: "a"}, logIns)
		require.NotNil(t, refusal)
		require.Positive(t, refusal.RetryAfter)
		require.Nil(t, l.Allow(t.Context(), Client{User: 0, Address: "b"}, logIns))
		require.Nil(t, l.Allow(t.Context(), Client{User: 1, Address: "b"}, Demand{Cost: 30_000}))
		require.NotNil(t, l.Allow(t.Context(), Client{User: 1, Address: "b"}, Demand{Cost: 30_000}))
	})
}

func TestLimitFailsOpen(t *testing.T) {
	l, server, _ := newStoppedLimits(t)
	server.Close()
	require.Nil(t, l.Allow(t.Context(), Client{User: 1, Address: "a"}, Demand{1, 1, 1}))
	l = new(Limits)
	require.Nil(t, l.Allow(t.Context(), Client{User: 1, Address: "a"}, Demand{1, 1, 1}))
}

func TestBucketsExpire(t *testing.T) {
	l, server, _ := newStoppedLimits(t)
	require.Nil(t, l.Allow(t.Context(), Client{User: 1, Address: "a"}, Demand{Mutations: 1, Cost: 1}))
	server.FastForward(time.Minute)
	require.Empty(t, server.Keys())
}

// Events and requests are charged to the same budget, regardless of the address.
func TestEventsTakeFromTheBudgetOfRequests(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	alice := Client{User: 1, Address: "a"}
	elsewhere := Client{User: 1, Address: "b"}
	for range testRates.cost.burst / 2 / 1000 {
		require.Nil(t, l.Spend(t.Context(), alice, 1000))
		require.Nil(t, l.Allow(t.Context(), elsewhere, Demand{Cost: 1000}))
	}
	refusal := l.Spend(t.Context(), elsewhere, 1000)
	require.NotNil(t, refusal)
	require.Positive(t, refusal.RetryAfter)
	require.NotNil(t, l.Allow(t.Context(), alice, Demand{Cost: 1000}))
	require.Nil(t, l.Spend(t.Context(), Client{User: 2, Address: "a"}, 1000), "another user")
	require.Nil(t, l.Spend(t.Context(), Client{Key: 1, User: 1, Address: "a"}, 1000), "an API key")
}

// The cost that a client executes at a time is bounded. Other clients need not wait for it, and an
// operation whose context ends while it waits is not executed.
func TestTurnsOfAClient(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	begun, end := make(chan struct{}), make(chan struct{})
	holds := func(c Client, cost int) {
		go l.InTurn(t.Context(), c, cost, func() {
			begun <- struct{}{}
			<-end
		})
		<-begun
	}
	goesOn := func(c Client, cost int) bool { return l.InTurn(t.Context(), c, cost, func() {}) }
	present := func(client string) int {
		l.rates.turns.mu.Lock()
		defer l.rates.turns.mu.Unlock()
		if at := l.rates.turns.byClient[client]; at != nil {
			return at.users
		}
		return 0
	}
	waits := func(c Client, cost int, client string) {
		ctx, cancel := context.WithCancel(t.Context())
		before, ok := present(client), make(chan bool)
		go func() { ok <- l.InTurn(ctx, c, cost, func() {}) }()
		require.Eventually(t, func() bool { return present(client) > before }, time.Minute, time.Millisecond)
		cancel()
		require.False(t, <-ok)
	}

	holds(Client{User: 1, Address: "a"}, costAtOnce-LeastCost)
	require.True(t, goesOn(Client{User: 1, Address: "b"}, LeastCost))
	waits(Client{User: 1, Address: "b"}, LeastCost+1, "user:{1}")
	require.True(t, goesOn(Client{User: 2, Address: "a"}, costAtOnce))
	require.True(t, goesOn(Client{Address: "a"}, 100*costAtOnce), "one operation is executed, whatever it costs")

	holds(Client{Key: 7, User: 1, Address: "a"}, keyCostAtOnce)
	waits(Client{Key: 7, User: 2, Address: "c"}, LeastCost, "key:{7}")

	close(end)
	require.True(t, goesOn(Client{User: 1}, costAtOnce))
	require.Eventually(t, func() bool { return present("user:{1}")+present("key:{7}") == 0 }, time.Minute, time.Millisecond)
	require.Empty(t, l.rates.turns.byClient, "nothing is kept of clients that do nothing")
}

// A client reads fields up to a price at a time, an API key fifteen times as much. Other clients need not wait for it.
func TestReadsOfAClient(t *testing.T) {
	l, _, _ := newStoppedLimits(t)
	hold := func(c Client, reads int) (release func()) {
		begun, end := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		for range reads {
			all.Go(func() {
				l.ReadInTurn(t.Context(), c, 50, func() {
					begun <- struct{}{}
					<-end
				})
			})
		}
		for range reads {
			<-begun
		}
		release = sync.OnceFunc(func() {
			close(end)
			all.Wait()
		})
		t.Cleanup(release)
		return release
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	waits := func(c Client) bool { return !l.ReadInTurn(ended, c, 1, func() {}) }
	alice, key := Client{User: 1, Address: "a"}, Client{Key: 7, User: 1, Address: "a"}
	releaseAlice, releaseKey := hold(alice, readsAtOnce/50), hold(key, keyReadsAtOnce/50)
	require.True(t, waits(Client{User: 1, Address: "b"}))
	require.True(t, waits(Client{Key: 7, User: 2, Address: "b"}))
	require.True(t, l.InTurn(t.Context(), alice, LeastCost, func() {}), "other work of the client")
	for _, other := range []Client{{User: 2, Address: "a"}, {Address: "a"}, {Key: 8, User: 1, Address: "a"}} {
		require.True(t, l.ReadInTurn(t.Context(), other, 2*keyReadsAtOnce, func() {}))
	}
	releaseAlice()
	releaseKey()
	require.True(t, l.ReadInTurn(t.Context(), alice, 2*readsAtOnce, func() {}))
	require.True(t, l.ReadInTurn(t.Context(), key, 1, func() {}))
	require.Empty(t, l.rates.reads.byClient, "nothing is kept of clients that do nothing")

	off := new(Limits)
	require.True(t, off.ReadInTurn(t.Context(), alice, readsAtOnce, func() { require.True(t, off.ReadInTurn(t.Context(), alice, readsAtOnce, func() {})) }))
}
