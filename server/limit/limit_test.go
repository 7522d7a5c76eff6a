package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var testConfig = Config{
	RateAccounts: 30, RateCredentials: 300, RateMutations: 600, RateCost: 600_000, MaxCost: 10_000, RateKeyMutations: 30_000, RateKeyCost: 6_000_000, RateNewAccount: 60,
	MaxSocketsPerUser: 50, MaxSocketsPerAddress: 500, MaxSubscriptionsPerUser: 200, MaxSubscriptionsPerAddress: 2000,
}

func TestRatesOfAConfig(t *testing.T) {
	require.Equal(t, rates{accounts: rate{60, 30}, wrong: rate{600, 300}, mutations: rate{120, 600}, cost: rate{200_000, 600_000},
		keyMutations: rate{6000, 30_000}, keyCost: rate{2_000_000, 6_000_000}, newHour: 60}, testConfig.rates())
	c := testConfig
	c.RateMutations, c.MaxCost = 1, 1_000_000
	require.Equal(t, 1, c.rates().mutations.burst, "one at least")
	require.Equal(t, 1_000_000, c.rates().cost.burst, "the dearest operation may be asked for")
}

func TestMistakesNameTheirFields(t *testing.T) {
	require.NoError(t, testConfig.Validate())
	c := testConfig
	c.RateAccounts, c.TrustedProxies, c.ProxyHeader = 0, []string{"10.0.0.0/33", "nobody"}, "x-real-ip"
	require.EqualError(t, c.Validate(), "RateAccounts is 0: it must be 1 to 60000\n"+
		"ProxyHeader is \"x-real-ip\": it must be x-forwarded-for or forwarded\n"+
		"TrustedProxies is \"10.0.0.0/33\": it must be an address or a network, such as 10.0.0.0/8\n"+
		"TrustedProxies is \"nobody\": it must be an address or a network, such as 10.0.0.0/8")
	_, err := New(nil, c)
	require.Error(t, err)
}

func TestOffRefusesNobody(t *testing.T) {
	c := testConfig
	c.Off, c.MaxSubscriptionsPerUser = true, 1
	l, err := New(nil, c)
	require.NoError(t, err)
	client := Client{User: 1, Address: "a"}
	for range 3 {
		require.Nil(t, l.Allow(t.Context(), client, Demand{Accounts: 1000, Mutations: 1000, Cost: 1_000_000}))
		require.Nil(t, l.Subscribe(t.Context(), client))
		require.Nil(t, l.Stream(t.Context(), client))
		_, refused := l.Download(client.User)
		require.Nil(t, refused)
	}
}
