package exec

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSubscription(t *testing.T) {
	e := (&fixture{}).engine(t)
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { e: events { __typename ... on User { handle } ... on Post { author { handle } } } }`})
	require.Nil(t, errs)
	require.Equal(t, "subscription", string(op.Kind()))
	responses, errs := e.Subscribe(t.Context(), op)
	require.Nil(t, errs)
	var got []string
	for r := range responses {
		b, err := r.AppendJSON(nil)
		require.NoError(t, err)
		got = append(got, string(b))
	}
	require.Equal(t, []string{
		`{"data":{"e":{"__typename":"User","handle":"ann"}}}`,
		`{"data":{"e":{"__typename":"Post","author":{"handle":"ann"}}}}`,
		`{"errors":[{"message":"lost","path":["e"],"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],"data":null}`,
		`{"errors":[{"message":"Subscription.events: exec.edge is of type \"Mystery\", which is no Event","path":["e"],` +
			`"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],"data":null}`,
		`{"data":{"e":{"__typename":"User","handle":"bob"}}}`,
	}, got)

	require.Equal(t, "null", string(e.Execute(t.Context(), op).Data), "a subscription is not executed")
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	e := (&fixture{}).engine(t)
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { events(n: 1) { __typename } }`})
	require.Nil(t, errs)
	for received := range 6 { // 5 events, then a source that only waits
		ctx, cancel := context.WithCancel(t.Context())
		responses, errs := e.Subscribe(ctx, op)
		require.Nil(t, errs)
		for range received {
			if _, ok := <-responses; !ok {
				require.FailNow(t, "closed early")
			}
		}
		cancel()
		for range responses { // at most the one on its way
		}
	}
}

func TestSubscriptionThatDoesNotStart(t *testing.T) {
	e := (&fixture{}).engine(t)
	for query, want := range map[string][2]string{
		`subscription { events(n: -1) { __typename } }`: {"FORBIDDEN", "not yours"},
		`subscription { numbers }`:                      {"INTERNAL", "panic: no numbers"},
	} {
		op, errs := e.Prepare(t.Context(), Request{Query: query})
		require.Nil(t, errs)
		responses, errs := e.Subscribe(t.Context(), op)
		require.Nil(t, responses)
		require.Len(t, errs, 1)
		require.Equal(t, want, [2]string{errs[0].Extensions["code"].(string), errs[0].Message})
		require.NotEmpty(t, errs[0].Path)
		require.NotEmpty(t, errs[0].Locations)
	}
}

type brokenOff struct{}

func (brokenOff) Error() string { return "broken off" }
func (brokenOff) Interrupted()  {}

// An interruption is the last response, whatever the source does after it.
func TestInterruptedSubscription(t *testing.T) {
	e := (&fixture{}).engine(t)
	op, errs := e.Prepare(t.Context(), Request{Query: `subscription { broken }`})
	require.Nil(t, errs)
	responses, errs := e.Subscribe(t.Context(), op)
	require.Nil(t, errs)
	var interrupted []bool
	for r := range responses {
		interrupted = append(interrupted, r.Interrupted)
	}
	require.Equal(t, []bool{false, true}, interrupted)
}
