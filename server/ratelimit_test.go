package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/graph/exec"
	"tideline/storage/storagetest"
)

var testRates = rates{
	accounts:  rate{burst: 10, perMinute: 30},
	mutations: rate{burst: 20, perMinute: 600},
	cost:      rate{burst: 40_000, perMinute: 60_000},
}

func noLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// limited is a limiter whose Redis has a clock that stands still.
func limited(t *testing.T) (*limiter, *miniredis.Miniredis, time.Time) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	return newLimiter(rdb, noLog(), testRates), server, now
}

func TestMutationsOfAUser(t *testing.T) {
	l, server, now := limited(t)
	alice, bob := account.Viewer{ID: 1}, account.Viewer{ID: 2}
	post := demand{mutations: 1}
	for range testRates.mutations.burst {
		require.Nil(t, l.allow(t.Context(), alice, "a", post))
	}
	refusal := l.allow(t.Context(), alice, "b", post)
	require.NotNil(t, refusal)
	require.Equal(t, map[string]any{"code": "RATE_LIMITED", "retryAfter": 1}, refusal.Extensions)
	require.Nil(t, l.allow(t.Context(), bob, "a", post))
	require.Nil(t, l.allow(t.Context(), alice, "a", demand{cost: 1000}), "reading goes on")

	// One token comes back each tenth of a second, and no more.
	server.SetTime(now.Add(100 * time.Millisecond))
	require.Nil(t, l.allow(t.Context(), alice, "a", post))
	require.NotNil(t, l.allow(t.Context(), alice, "a", post))
}

func TestAccountsOfAnAddress(t *testing.T) {
	l, _, _ := limited(t)
	anonymous := account.Viewer{}
	require.Nil(t, l.allow(t.Context(), anonymous, "a", demand{accounts: testRates.accounts.burst}))
	require.NotNil(t, l.allow(t.Context(), anonymous, "a", demand{accounts: 1}))
	require.NotNil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "a", demand{accounts: 1}))
	require.Nil(t, l.allow(t.Context(), anonymous, "b", demand{accounts: 1}))
	require.Nil(t, l.allow(t.Context(), anonymous, "a", demand{mutations: 1}))
	refusal := l.allow(t.Context(), anonymous, "c", demand{accounts: testRates.accounts.burst + 1})
	require.NotNil(t, refusal)
	require.NotContains(t, refusal.Extensions, "retryAfter", "waiting does not help")
}

func TestCostOfAUser(t *testing.T) {
	l, server, now := limited(t)
	alice := account.Viewer{ID: 1}
	spend := func(v account.Viewer, address string) (spent int) {
		for l.allow(t.Context(), v, address, demand{cost: 300}) == nil {
			spent += 300
		}
		return spent
	}
	require.InDelta(t, testRates.cost.burst, spend(alice, "a"), 1000)
	refusal := l.allow(t.Context(), alice, "a", demand{cost: 10_000})
	require.NotNil(t, refusal)
	require.InDelta(t, 10, refusal.Extensions["retryAfter"], 1, "a thousand a second")
	server.SetTime(now.Add(3 * time.Second))
	require.InDelta(t, 3000, spend(alice, "a"), 1000)

	// An address has some users' worth for all who are signed in there, and
	// one's for all others.
	all := 0
	for id := range int64(20) {
		all += spend(account.Viewer{ID: 10 + id}, "b")
	}
	require.InDelta(t, sharedCost*testRates.cost.burst, all, 10_000)
	require.InDelta(t, testRates.cost.burst, spend(account.Viewer{}, "b"), 1000)
}

// Most operations are paid from what the process has taken before.
func TestCostAsksRedisSeldom(t *testing.T) {
	l, server, _ := limited(t)
	before := server.CommandCount()
	for range 100 {
		require.Nil(t, l.allow(t.Context(), account.Viewer{}, "a", demand{cost: 100}))
	}
	require.Less(t, server.CommandCount()-before, 60) // the script's own commands count
	for i := range maxLeases + 10 {
		l.leased[fmt.Sprint(i)] = 0
	}
	require.Nil(t, l.allow(t.Context(), account.Viewer{}, "b", demand{cost: 100}))
	require.Len(t, l.leased, 1, "forgotten")
}

// The script means the same to every kind of Redis.
func TestLimitOnEveryRedis(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, _ bool) {
		l := newLimiter(rdb, noLog(), testRates)
		logIns := demand{accounts: testRates.accounts.burst, cost: leastCost}
		require.Nil(t, l.allow(t.Context(), account.Viewer{}, "a", logIns))
		refusal := l.allow(t.Context(), account.Viewer{}, "a", logIns)
		require.NotNil(t, refusal)
		require.Positive(t, refusal.Extensions["retryAfter"])
		require.Nil(t, l.allow(t.Context(), account.Viewer{}, "b", logIns))
		require.Nil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "b", demand{cost: 30_000}))
		require.NotNil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "b", demand{cost: 30_000}))
	})
}

func TestLimitFailsOpen(t *testing.T) {
	l, server, _ := limited(t)
	server.Close()
	require.Nil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "a", demand{1, 1, 1}))
	l = nil
	require.Nil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "a", demand{1, 1, 1}))
}

func TestBucketsExpire(t *testing.T) {
	l, server, _ := limited(t)
	require.Nil(t, l.allow(t.Context(), account.Viewer{ID: 1}, "a", demand{mutations: 1, cost: 1}))
	server.FastForward(time.Minute)
	require.Empty(t, server.Keys())
}

func TestDemandOfAnOperation(t *testing.T) {
	f := newFixture(t, nil)
	for query, want := range map[string]demand{
		"{hello}":                                                {cost: leastCost},
		"mutation{a:set(n:1) b:set(n:2)}":                        {mutations: 2, cost: leastCost},
		"mutation{a:logIn b:logIn c:signUp}":                     {accounts: 3, cost: leastCost},
		"mutation{set(n:1) logIn}":                               {accounts: 1, mutations: 1, cost: leastCost},
		"subscription{news}":                                     {cost: leastCost},
		"{__schema{queryType{name}}}":                            {cost: 503},
		"mutation{...f} fragment f on Mutation{a:logIn b:logIn}": {accounts: 2, cost: leastCost},
	} {
		operation, errs := f.handler.api.engine.Prepare(t.Context(), exec.Request{Query: query})
		require.Empty(t, errs)
		require.Equal(t, want, demandOf(operation), query)
	}
}

func (f *fixture) post(body string, more ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", asJSON)
	for _, change := range more {
		change(r)
	}
	w := httptest.NewRecorder()
	identify(f.handler).ServeHTTP(w, r)
	return w
}

func TestRateLimitedAnswer(t *testing.T) {
	f := newFixture(t, nil)
	l, _, _ := limited(t)
	f.handler.api.limiter = l
	require.Equal(t, http.StatusOK, f.post(`{"query":"mutation{a:logIn b:logIn c:logIn d:logIn e:logIn f:logIn}"}`).Code)
	refused := f.post(`{"query":"mutation{a:logIn b:logIn c:logIn d:logIn e:logIn f:logIn}"}`)
	require.Equal(t, http.StatusTooManyRequests, refused.Code, refused.Body)
	require.Equal(t, "4", refused.Header().Get("Retry-After")) // two are missing, at one in two seconds
	require.Contains(t, refused.Body.String(), `"RATE_LIMITED"`)
	require.Contains(t, refused.Body.String(), `"retryAfter":4`)

	// What is refused for other reasons counts as well.
	for f.post(`{"query":"{"}`).Code != http.StatusTooManyRequests {
	}
	require.Equal(t, http.StatusTooManyRequests, f.post(`{"query":"{hello}"}`).Code)
}

func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":   "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"pipe":                      "pipe",
	} {
		require.Equal(t, want, addressOf(remote), remote)
	}
}

func TestProxies(t *testing.T) {
	c, err := parse(t, "--trusted-proxies=10.0.0.0/8,192.0.2.1,2001:db8::/32")
	require.NoError(t, err)
	const header, standard = "X-Forwarded-For", "Forwarded"
	for name, tc := range map[string]struct {
		from, header string
		values       []string
		want         string
	}{
		"direct":                  {"203.0.113.9:1", header, nil, "203.0.113.9"},
		"untrusted claim":         {"203.0.113.9:1", header, []string{"198.51.100.1"}, "203.0.113.9"},
		"one proxy":               {"10.1.2.3:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"a single address":        {"192.0.2.1:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"its neighbour":           {"192.0.2.2:1", header, []string{"198.51.100.1"}, "192.0.2.2"},
		"two proxies":             {"10.1.2.3:1", header, []string{"198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		"two lines":               {"10.1.2.3:1", header, []string{"198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		"client lies":             {"10.1.2.3:1", header, []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		"client lies of a proxy":  {"10.1.2.3:1", header, []string{"8.8.8.8, 10.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		"all are proxies":         {"10.1.2.3:1", header, []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"},
		"nothing said":            {"10.1.2.3:1", header, nil, "10.1.2.3"},
		"nonsense":                {"10.1.2.3:1", header, []string{"198.51.100.1, nonsense"}, "10.1.2.3"},
		"nonsense behind a proxy": {"10.1.2.3:1", header, []string{"nonsense, 10.4.4.4"}, "10.4.4.4"},
		"port":                    {"10.1.2.3:1", header, []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"IPv6":                    {"[2001:db8::1]:1", header, []string{"2001:db9:1:2::3"}, "2001:db9:1:2::/64"},
		"IPv6 in brackets":        {"10.1.2.3:1", header, []string{"[2001:db9:1:2::3]:80"}, "2001:db9:1:2::/64"},
		"mapped proxy":            {"[::ffff:10.1.2.3]:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"the other header":        {"10.1.2.3:1", standard, []string{"for=198.51.100.1"}, "10.1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tc.from
			r.Header[tc.header] = tc.values
			got := ""
			c.proxies().resolve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = addressOf(r.RemoteAddr) })).
				ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, tc.want, got)
		})
	}
	c.ProxyHeader = headerForwarded
	for value, want := range map[string]string{
		`for=198.51.100.1`: "198.51.100.1", `proto=https;For="198.51.100.1:80";by=10.0.0.1`: "198.51.100.1",
		`for="[2001:db9:1:2::3]:80"`: "2001:db9:1:2::/64", `for=_hidden`: "10.1.2.3", `for=unknown`: "10.1.2.3",
		`for=8.8.8.8, for=198.51.100.1, for=10.0.0.7`: "198.51.100.1", `proto=https`: "10.1.2.3", `for="[2001:db9:1:2::3]"`: "2001:db9:1:2::/64",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.1.2.3:1"
		r.Header.Set(standard, value)
		r.Header.Set(header, "203.0.113.1")
		c.proxies().resolve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, want, addressOf(r.RemoteAddr), value)
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}
