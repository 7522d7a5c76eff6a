package text_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tideline/feed/internal/text"
	"tideline/feed/refusal"
)

func reasonOf(err error) string {
	var refused *refusal.Error
	if errors.As(err, &refused) {
		return refused.Reason.Name
	}
	return ""
}

func TestData(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{}`: `{}`,
		` { "b" : 1.0 , "a" : [ true , null , "<é>" ] } `: `{"a":[true,null,"<é>"],"b":1}`,
		`{"n":-0.0,"m":1e3,"p":0.1}`:                      `{"m":1000,"n":0,"p":0.1}`,
		`{"a":{"a":{"a":{"a":{}}}}}`:                      `{"a":{"a":{"a":{"a":{}}}}}`,
		`{"n":9007199254740991}`:                          `{"n":9007199254740991}`,
		`{"s":"\u0000"}`:                                  `{"s":"\u0000"}`,
	} {
		got, err := text.Data(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got, given)
	}
	for given, reason := range map[string]string{
		``: "NOT_AN_OBJECT", `null`: "NOT_AN_OBJECT", `[]`: "NOT_AN_OBJECT", `"a"`: "NOT_AN_OBJECT", `{`: "NOT_AN_OBJECT",
		`{} {}`: "NOT_AN_OBJECT", `{}}`: "NOT_AN_OBJECT", `{}]`: "NOT_AN_OBJECT",
		`{"a":{"a":{"a":{"a":{"a":{}}}}}}`:                  "TOO_DEEP",
		`{"a":[[[[[]]]]]}`:                                  "TOO_DEEP",
		`{"n":9007199254740993}`:                            "OUT_OF_RANGE",
		`{"n":1e999}`:                                       "OUT_OF_RANGE",
		`{"a":"` + strings.Repeat("x", text.MaxData) + `"}`: "TOO_LONG",
	} {
		_, err := text.Data(given)
		require.Equal(t, reason, reasonOf(err), "%.60s: %v", given, err)
	}
}

// Objects with the same meaning have the same text, and the text has the meaning of the input.
func TestDataIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var value func(level int) any
		value = func(level int) any {
			switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
			case kind == 0 && level < text.MaxDataDepth:
				return rapid.MapOfN(rapid.String(), rapid.Just(value(level+1)), 0, 3).Draw(t, "object")
			case kind == 1 && level < text.MaxDataDepth:
				return []any{value(level + 1)}
			case kind == 2:
				return rapid.Float64Range(-1e15, 1e15).Draw(t, "number")
			case kind == 3:
				return rapid.Bool().Draw(t, "flag")
			case kind == 4:
				return nil
			}
			return rapid.StringN(0, 10, 40).Draw(t, "text")
		}
		object := map[string]any{"a": value(1), "b": value(1)}
		given, err := json.MarshalIndent(object, "", "\t")
		require.NoError(t, err)
		once, err := text.Data(string(given))
		require.NoError(t, err)
		again, err := text.Data(once)
		require.NoError(t, err)
		require.Equal(t, once, again)
		require.JSONEq(t, string(given), once)
	})
}

func TestCleanURL(t *testing.T) {
	t.Parallel()
	field := text.Field{What: "The link", Name: "link", Limit: "linkLength", Most: 40}
	for given, want := range map[string]string{
		"": "", " https://example.org/a?b=c#d ": "https://example.org/a?b=c#d", "http://[::1]:80/": "http://[::1]:80/", "https://例え.jp/": "https://例え.jp/",
	} {
		got, err := field.CleanURL(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got)
	}
	for given, reason := range map[string]string{
		"javascript:alert(1)": "NOT_A_URL", "//example.org": "NOT_A_URL", "https://": "NOT_A_URL", "ftp://example.org": "NOT_A_URL", "data:text/html,x": "NOT_A_URL",
		"https://a@example.org": "NOT_A_URL", "https:example.org": "NOT_A_URL", `https://example.org/"x`: "NOT_A_URL", "https://example.org/a b": "NOT_A_URL",
		"https://example.org/\n": "NOT_ONE_LINE", "https://example.org/" + strings.Repeat("x", 40): "TOO_LONG",
	} {
		_, err := field.CleanURL(given)
		require.Equal(t, reason, reasonOf(err), given)
	}
}
