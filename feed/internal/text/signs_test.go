package text_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/internal/text"
)

func TestSignsFindsWordsOutsideAddresses(t *testing.T) {
	t.Parallel()
	type found struct {
		at                  int
		before, word, after string
	}
	type sought struct {
		text  string
		apart bool
		want  []found
	}
	signs := text.NewSigns(`!！`, `[a-z]+`)
	for _, s := range []sought{
		{"no sign", true, nil},
		{"! !1 a!", true, nil},
		{"！ab !c", true, []found{{0, "", "ab", " !c"}, {6, "！ab ", "c", ""}}},
		{"https://a.b/!c?!d !e", true, []found{{18, "https://a.b/!c?!d ", "e", ""}}},
		{"http://a.b！!c", true, []found{{13, "http://a.b！", "c", ""}}},
		{"!https://a.b/!c", true, []found{{0, "", "https", "://a.b/!c"}, {13, "!https://a.b/", "c", ""}}},
		{"!https://a.b/!c", false, []found{{0, "", "https", "://a.b/!c"}}},
	} {
		var asked []found
		yielded := map[int]string{}
		for at, word := range signs.All(s.text, func(before, word, after string) bool {
			asked = append(asked, found{len(before), before, word, after})
			return s.apart
		}) {
			yielded[at] = word
		}
		require.Equal(t, s.want, asked, s.text)
		want := map[int]string{}
		if s.apart {
			for _, f := range s.want {
				want[f.at] = f.word
			}
		}
		require.Equal(t, want, yielded, s.text)
	}
	for range signs.All("!a !b", func(string, string, string) bool { return true }) {
		break // the sequence allows it
	}
}
