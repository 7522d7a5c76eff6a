package text_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/internal/text"
	"tideline/feed/refusal"
)

// Texts that people consider equal have the same form.
func TestFold(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"мария", "Мария", "МАРИЯ"},
		{"élodie", "Élodie", "E\u0301lodie", "ÉLODIE"},
		{"şen", "Şen", "S\u0327en"},
		{"ελένησ", "Ελένης", "ΕΛΈΝΗΣ", "Ελε\u0301νης"},
		{"łukasz", "Łukasz", "ŁUKASZ"},
		{"abc", "ＡＢＣ", "ａｂｃ", "a\u00ADb\u200Bc", "\u2066abc\u2069"},
		{"strasse", "Straße", "STRASSE", "STRAẞE"},
		{"ꭰꮃ", "ᎠᎳ", "ꭰꮃ"},
		{"❤", "❤️", "❤\uFE0E"},
		{"نرمافزار", "نرم\u200cافزار"},
		{"a b", " a\u2028 b\u2800", "a\u3000b", "A\u00A0B"},
		{"", "\u200B", "\u3164", "\u2800", "\uFEFF"},
		{"a\uFFFD", "a\xff"},
	} {
		for _, s := range same {
			require.Equal(t, same[0], text.Fold(s), "%q", s)
			require.Equal(t, same[0], text.FoldPhrase(s), "%q", s)
		}
	}
	for _, same := range [][]string{
		{"don't", "don’t", "don‘t", "donʼt", "DON＇T"},
		{`צה"ל`, "צה״ל", "צה“ל"},
		{"rock-pool", "rock‐pool", "rock‑pool", "rock–pool"},
	} {
		for _, s := range same {
			require.Equal(t, same[0], text.FoldPhrase(s), "%q", s)
		}
	}
	require.Equal(t, "צה״ל", text.Fold("צה״ל"), "a tag keeps it")
	require.Equal(t, "zoe lukasz елка ελενη soren 한글 がき ไม้ नि", text.Unaccented(text.Fold("Zoë Łukasz Ёлка Ελένη Søren 한글 がき ไม้ नि")), "only letters that have a form without")
	require.Equal(t, []string{"o'neil", "'neil", "neil", "李小龙", "小龙", "龙"}, slices.Collect(text.Beginnings("o'neil 李小龙")))
	require.Equal(t, "李小", text.Cut("李小龙", 2))
	require.Equal(t, "李小龙", text.Cut("李小龙", 3))
}

func FuzzFold(f *testing.F) {
	for _, s := range []string{"Straße ΐ", "ŉ ǰ İ", "ͅa", "\u0345\u0301", "ᾷ", "Ꮮꮮ", "ﷺ", "´a", "\u1E9E", "ϓ", "\u2800", "\xff", "ʼn"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		require.Equal(t, text.Fold(s), text.Fold(text.Fold(s)), "%q", s)
		require.Equal(t, text.FoldPhrase(s), text.FoldPhrase(text.FoldPhrase(s)), "%q", s)
		require.Equal(t, text.FoldPhrase(s), text.FoldPhrase(text.Fold(s)), "%q", s)
	})
}

func TestTextsThatShowNothingOrTurn(t *testing.T) {
	t.Parallel()
	line := text.Field{What: "The name", Name: "name", Limit: "nameLength", Least: 1, Most: 50}
	for name, c := range map[string]struct {
		text   string
		reason refusal.Reason
	}{
		"zero width":          {"\u200B\u200C\u200D", refusal.Empty},
		"hangul filler":       {"\u3164 \u1160", refusal.Empty},
		"braille blank":       {"\u2800\u2800", refusal.Empty},
		"byte order mark":     {"\uFEFF", refusal.Empty},
		"variation selector":  {"\uFE0F", refusal.Empty},
		"tag characters":      {"\U000E0061\U000E007F", refusal.Empty},
		"line separator":      {"a\u2028b", refusal.NotOneLine},
		"paragraph separator": {"a\u2029b", refusal.NotOneLine},
		"vertical tab":        {"a\vb", refusal.NotOneLine},
		"next line":           {"a\u0085b", refusal.NotOneLine},
		"override":            {"a\u202Eb", refusal.NotText},
		"embedding":           {"a\u202Ab", refusal.NotText},
		"isolate":             {"\u2067ab", refusal.NotText},
	} {
		_, err := line.CleanLine(c.text)
		var refused *refusal.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, c.reason, refused.Reason, name)
		_, err = line.FoldPhrase(c.text)
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, c.reason, refused.Reason, name)
		if c.reason == refusal.Empty {
			_, err = text.OfPost(100).Clean(c.text)
			require.ErrorAs(t, err, &refused, name)
			require.Equal(t, c.reason, refused.Reason, name)
		}
	}
	for _, s := range []string{"\u200Fאבג", "نرم\u200cافزار", "👩‍👧", "\u0600", "é", "."} {
		clean, err := line.CleanLine(s)
		require.NoError(t, err, "%q", s)
		require.Equal(t, s, clean)
	}
	clean, err := text.OfPost(100).Clean("a\u202Eb\nc\u2028d")
	require.NoError(t, err, "a post has lines of its own")
	require.Equal(t, "a\u202Eb\nc\u2028d", clean)
}

func TestBoundsAreThoseOfTheFoldedText(t *testing.T) {
	t.Parallel()
	word := text.Field{What: "The word", Name: "word", Limit: "wordLength", Least: 1, Most: 64}
	for s, given := range map[string]int{
		strings.Repeat("a", 63) + "ß":        65,
		strings.Repeat("ﷺ", 32):              32 * 18,
		strings.Repeat("a", 65):              65,
		strings.Repeat("\u200B", 1025) + "a": 1026,
	} {
		_, err := word.FoldPhrase(s)
		var refused *refusal.Error
		require.ErrorAs(t, err, &refused, "%q", s)
		require.Equal(t, refusal.TooLong, refused.Reason)
		require.Equal(t, []any{64, given}, []any{refused.Allowed, refused.Given}, "%q", s)
	}
	folded, err := word.FoldPhrase(strings.Repeat("e\u0301\u00AD", 64))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", 64), folded)
}
