package ranking

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tideline/feed/refusal"
)

// hotWeight is the ranking hot as it was before expressions existed. Its order is a promise.
func hotWeight(likes int, created time.Time, decay time.Duration) float64 {
	return math.Log10(float64(max(likes, 1))) + created.Sub(beginning).Seconds()/decay.Seconds()
}

// given returns the values of the signals that the ranking reads, by their names.
func given(r *Ranking, signals map[string]float64) values {
	var v [MaxSignals]float64
	for i, name := range r.signals {
		v[i] = signals[name]
	}
	return &v
}

func TestHotScoresAsEver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		decay := time.Duration(rapid.Int64Range(int64(MinDecay), int64(MaxDecay)).Draw(t, "decay"))
		likes := rapid.IntRange(0, 1e9).Draw(t, "likes")
		created := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "created"))
		s, err := New(decay, nil)
		require.NoError(t, err)
		hot, err := s.Named("")
		require.NoError(t, err)
		require.Equal(t, hotWeight(likes, created, decay),
			hot.score(given(hot, map[string]float64{"likes": float64(likes), "posted": created.Sub(beginning).Seconds()})))
	})
	day, now := 24*time.Hour, time.Now()
	require.Greater(t, hotWeight(0, now, DefaultDecay), hotWeight(50, now.Add(-day), DefaultDecay), "a day outweighs fifty likes")
	require.Less(t, hotWeight(0, now, DefaultDecay), hotWeight(1000, now.Add(-day), DefaultDecay), "and not a thousand")
	require.InDelta(t, hotWeight(1, now, DefaultDecay), hotWeight(10, now.Add(-DefaultDecay), DefaultDecay), 1e-9, "the decay outweighs ten times the likes")
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	signals := map[string]float64{"age": 3600, "posted": 6e7, "likes": 7, "affinity": 0.5, "own": 1, "data.price": 12.5, "data.rating.mean": 4, `data["two words"]`: 3}
	for expression, want := range map[string]float64{
		"1": 1, "-1.5": -1.5, "+likes": 7, "1 + 2 * 3": 7, "2 ** 3 ^ 1": 8, "7 % 4": 3, "7 / 2": 3.5, "1 / 0": math.Inf(1),
		"likes + affinity": 7.5, "log10(max(likes, 1, 100))": 2, "min(likes, age)": 7, "sqrt(abs(-9))": 3, "floor(2.7) + ceil(2.2) + round(2.5)": 8,
		"exp(0) + log(1) + log2(8)": 4, "data.price * 2": 25, "data.rating.mean": 4, `data["two words"]`: 3, "data.price | max(20)": 20,
		"likes > 5 ? 1 : 2": 1, "likes > 5 && own == 0 ? 1 : 2": 2, "not (likes >= 7) or age < 1 ? 1 : 2": 2, "!(likes != 7) && true ? 1 : 2": 1,
		"likes <= 7 ? (own > 0 ? 3 : 4) : 5": 3, "likes - likes": 0,
	} {
		r, err := Compile("x", expression)
		require.NoError(t, err, expression)
		require.Equal(t, want, r.score(given(r, signals)), expression)
	}
	r, err := Compile("x", `data.a.b + data["a.b"] + data.a.b`)
	require.NoError(t, err)
	require.Equal(t, []string{"data.a.b", `data["a.b"]`}, r.signals, "one of them is a name with a dot")
}

func TestExpressionsThatAreRefused(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("likes+", MaxOperations/2) + "likes"
	for expression, want := range map[string]string{
		"":                         "at character 1:",
		"1 +":                      "at character 3: unexpected token EOF",
		"liks + 1":                 `at character 1: "liks" is no signal: there are age, posted, likes, affinity, own, and data.NAME`,
		"1 + data":                 `at character 5: "data" is no signal`,
		"likes.x":                  "only data has parts",
		"data[likes]":              "only data has parts",
		"data?.price":              "a number belongs here",
		`"text"`:                   "a number belongs here",
		"true":                     "a number belongs here",
		"nil":                      "a number belongs here",
		"likes > 1":                "> makes a condition, where a number belongs: write CONDITION ? NUMBER : NUMBER",
		"!likes":                   "! makes a condition",
		"likes ? 1 : 2":            "at character 1: a condition belongs here, such as likes > 10",
		"likes in [1]":             "in is not an operator of numbers",
		"1..9":                     ".. is not an operator of numbers",
		"likes ?? 1":               "?? is not an operator of numbers",
		"sum([1, 2])":              `"sum" is no function: there are abs, ceil, exp`,
		"map([1], # + 1)":          `"map" is no function`,
		"now()":                    `"now" is no function`,
		"log10(1, 2)":              "log10 has 2 arguments: it takes one number",
		"max(1)":                   "max has 1 arguments: it takes two numbers or more",
		"let x = 1; x":             "a number belongs here",
		many:                       "the expression has more than 200 operations",
		strings.Repeat(" ", 2001):  "the expression has 2001 bytes: at most 2000 are allowed",
		strings.Repeat("(", 2000):  "unexpected token",
		strings.Repeat("-", 1999):  "unexpected token",
		"[1, 2][0]":                "only data has parts",
		"(likes > 1 ? 1 : 2)(3)":   "unexpected token",
		"likes; age":               "a number belongs here",
		"data.toString()":          "this cannot be called",
		"likes > 1 ? 1 : own == 1": "== makes a condition",
	} {
		_, err := Compile("x", expression)
		require.ErrorContains(t, err, want, expression)
		require.NotContains(t, err.Error(), "\n", "a line of a log")
	}
	signals := []string{}
	for i := range MaxSignals + 1 {
		signals = append(signals, "data.f"+strings.Repeat("x", i))
	}
	_, err := Compile("x", strings.Join(signals, "+"))
	require.ErrorContains(t, err, "more than 32 signals")
}

func TestNames(t *testing.T) {
	t.Parallel()
	s, err := New(DefaultDecay, map[string]string{"near": "affinity", "deal-2": "data.price"})
	require.NoError(t, err)
	require.Equal(t, []string{"hot", "deal-2", "near"}, s.Names())
	for name, want := range map[string]string{"": "hot", "hot": "hot", "near": "near"} {
		r, err := s.Named(name)
		require.NoError(t, err)
		require.Equal(t, want, r.Name)
	}
	_, err = s.Named("Near")
	require.ErrorContains(t, err, "There is no ranking of that name: there are hot, deal-2, near.")
	require.Equal(t, refusal.BadInput, refusal.CodeOf(err))

	many := map[string]string{}
	for i := range MaxRankings + 1 {
		many["a"+strings.Repeat("b", i)] = "likes"
	}
	for want, expressions := range map[string]map[string]string{
		`ranking "hot": this is the name`:                     {"hot": "likes"},
		`ranking "Near": a name is`:                           {"Near": "likes"},
		`ranking "": a name is`:                               {"": "likes"},
		`ranking "near": at character 1: "liks" is no signal`: {"near": "liks"},
		"it has 17 rankings: at most 16 are allowed":          many,
	} {
		_, err := New(DefaultDecay, expressions)
		require.ErrorContains(t, err, want)
	}
	_, err = New(DefaultDecay, map[string]string{"a": "x", "b": "y"})
	require.Len(t, strings.Split(err.Error(), "\n"), 2, "all of them are named")
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := Read(` {"near": "affinity"}`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"near": "affinity"}, got)
	got, err = Read("")
	require.NoError(t, err)
	require.Empty(t, got)
	for setting, want := range map[string]string{
		`{"near": 1}`: "it must be a JSON object of names and expressions", `{} {}`: "nothing after it", "no-such-file": "or a file that has one",
	} {
		_, err := Read(setting)
		require.ErrorContains(t, err, want)
	}
}

func TestScoresAreFinite(t *testing.T) {
	t.Parallel()
	require.Equal(t, -1e300, finite(math.NaN()))
	require.Equal(t, 1e300, finite(math.Inf(1)))
	require.Equal(t, -1e300, finite(math.Inf(-1)))
	require.Equal(t, 2.5, finite(2.5))
}

// Every text that the parser accepts is compiled or refused, and a compiled expression returns a
// score.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{HotExpression(DefaultDecay), "likes > 5 ? 1 : data.a.b", "max(1)", "let x = 1; x", "sum(1..9, #)", `data["a"]?.b`, "if likes > 1 {2} else {3}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Compile("x", text)
		if err == nil {
			require.False(t, math.IsNaN(finite(r.score(given(r, nil)))))
		}
	})
}

// The floor is the hard-wired formula that expressions replaced.
func BenchmarkScore(b *testing.B) {
	likes, created := 12, time.UnixMilli(1.7e12)
	b.Run("floor", func(b *testing.B) {
		var sum float64
		for b.Loop() {
			sum += hotWeight(likes, created, DefaultDecay)
		}
		require.NotZero(b, sum)
	})
	longest := "likes" + strings.Repeat("*2", MaxOperations/2-1)
	for name, expression := range map[string]string{
		"hot": HotExpression(DefaultDecay), "near": "log10(max(likes, 1)) + posted / 45000 + 2 * affinity + (data.boost > 0 ? 1 : 0)", "longest": longest,
	} {
		r, err := Compile(name, expression)
		require.NoError(b, err)
		v := given(r, map[string]float64{"likes": 12, "posted": created.Sub(beginning).Seconds()})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var sum float64
			for b.Loop() {
				sum += r.score(v)
			}
			require.NotZero(b, sum)
		})
	}
}
