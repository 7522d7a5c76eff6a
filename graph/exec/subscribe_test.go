package exec

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec/exectest"
)

// numbers returns a resolver of a subscription to the values, which ends after them.
func numbers(values ...any) exectest.Resolver {
	return func(ctx context.Context, _ map[string]any) (any, error) {
		return Open(ctx, func(ctx context.Context, wake func()) (Source[any], error) {
			events := make(chan any, len(values))
			for _, v := range values {
				events <- v
			}
			close(events)
			return exectest.From(ctx, events, wake), nil
		})
	}
}

// begun is a running subscription, with the channel that wakes its reader.
type begun struct {
	*Subscription
	news chan struct{}
}

func begin(t *testing.T, ctx context.Context, e *Engine, query string) begun {
	t.Helper()
	op, errs := e.Prepare(ctx, Request{Query: query})
	require.Empty(t, errs)
	news := make(chan struct{}, 1)
	s, errs := e.Subscribe(ctx, op, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	require.Empty(t, errs)
	return begun{s, news}
}

// rest returns all responses until the end.
func (b begun) rest(t *testing.T, ctx context.Context) (got []string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		for r, ok := b.Next(ctx); ok; r, ok = b.Next(ctx) {
			got = append(got, text(t, r))
		}
		if b.Ended() {
			return got
		}
		select {
		case <-b.news:
		case <-timeout:
			require.FailNow(t, "it does not end")
		}
	}
}

func TestSubscription(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{"Subscription.numbers": numbers(1, errors.New("lost"), exectest.Withdrawn{}, 2)})
	s := begin(t, t.Context(), e, `subscription { n: numbers }`)
	require.Equal(t, []string{
		`{"data":{"n":1}}`,
		`{"errors":[{"message":"lost","path":["n"],"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],"data":null}`,
		`{"data":{"n":2}}`,
	}, s.rest(t, t.Context()))
	require.False(t, s.Interrupted())
	require.Equal(t, "null", string(e.Execute(t.Context(), s.op).Data), "a subscription is not executed")
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Subscription.numbers": func(ctx context.Context, _ map[string]any) (any, error) {
			return Open(ctx, func(ctx context.Context, wake func()) (Source[any], error) {
				return exectest.From(ctx, make(chan any), wake), nil
			})
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	s := begin(t, ctx, e, `subscription { numbers }`)
	cancel()
	require.Empty(t, s.rest(t, ctx))
}

func TestInterruptedSubscriptionSaysSo(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{"Subscription.numbers": numbers(1, exectest.Interruption{}, 2)})
	s := begin(t, t.Context(), e, `subscription { numbers }`)
	require.Equal(t, []string{`{"data":{"numbers":1}}`}, s.rest(t, t.Context()))
	require.True(t, s.Interrupted())
}

func TestSubscriptionThatDoesNotStart(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{
		"Subscription.numbers": func(context.Context, map[string]any) (any, error) { panic("no numbers") },
		"Subscription.broken":  func(context.Context, map[string]any) (any, error) { return nil, errors.New("broken") },
		"Query.old":            func(context.Context, map[string]any) (any, error) { return nil, nil },
	})
	for query, want := range map[string]string{
		`subscription { numbers }`: "panic: no numbers", `subscription { broken }`: "broken",
		`{ old }`: "only a subscription can be subscribed to",
	} {
		op, errs := e.Prepare(t.Context(), Request{Query: query})
		require.Empty(t, errs)
		s, errs := e.Subscribe(t.Context(), op, func() {})
		require.Nil(t, s)
		require.Len(t, errs, 1)
		require.Equal(t, want, errs[0].Message)
		require.Equal(t, CodeInternal, errs[0].Extensions["code"])
	}
}

func TestCut(t *testing.T) {
	tpl := &template{}
	tpl.cut([]byte(`{"p":"` + placeholder + `","text":"x\\":-2147483648, \\\\\\":-2147483648","n":-2147483648,"c":"` + placeholder + `","m":-2147483648}`))
	require.Equal(t, []hole{stringHole, intHole, stringHole, intHole}, tpl.holes)
	var parts []string
	for _, part := range tpl.parts {
		parts = append(parts, string(part))
	}
	require.Equal(t, []string{`{"p":"`, `","text":"x\\":-2147483648, \\\\\\":-2147483648","n":`, `,"c":"`, `","m":`, `}`}, parts)
}

// Each response has a price. If the subscriber cannot pay, the subscription ends and says why.
func TestResponsesArePaidFor(t *testing.T) {
	e := newEngine(t, map[string]exectest.Resolver{"Subscription.numbers": numbers(1, 2, 3)})
	s := begin(t, t.Context(), e, "subscription { numbers }")
	var paid []int
	refusal := gqlerror.List{{Message: "no more"}}
	s.SetCharge(func(cost int) gqlerror.List {
		if len(paid) == 2 {
			return refusal
		}
		paid = append(paid, cost)
		return nil
	})
	for range 2 {
		require.Eventually(t, func() bool { _, ok := s.Next(t.Context()); return ok }, 30*time.Second, time.Millisecond)
		require.Nil(t, s.Refused())
	}
	require.Eventually(t, func() bool { _, ok := s.Next(t.Context()); return !ok && s.Refused() != nil }, 30*time.Second, time.Millisecond)
	require.Equal(t, refusal, s.Refused())
	require.Len(t, paid, 2)
	require.Positive(t, paid[0])
	_, ok := s.Next(t.Context())
	require.False(t, ok)
}
