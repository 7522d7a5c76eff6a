package visibility

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMutedWordsMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word, text string
		has        bool
	}{
		{"cat", "My CAT sleeps", true},
		{"cat", "cat", true},
		{"cat", "a category", false},
		{"cat", "a tomcat", false},
		{"cat", "category, and a cat.", true},
		{"cat", "cat's", true},
		{"cat", "cat5", false},
		{"cat", "#cat", true},
		{"#cat", "cat", false},
		{"#cat", "my #Cat!", true},
		{"#cat", "#category", false},
		{"ＣＡＴ", "a cat", true},
		{"cat", "ａ ｃａｔ", true},
		{"straße", "STRASSE", true},
		{"Strasse", "die Straße", true},
		{"ΣΊΣΥΦΟΣ", "σίσυφος", true},
		{"hot  dog", "a hot\ndog", true},
		{"hot dog", "a hotdog", false},
		{"hot dog", "a hot doge", false},
		{"猫", "这里有猫咪", true},
		{"猫咪", "这里有猫", false},
		{"cat猫", "my cat猫咪", true},
		{"ネコ", "カワイイﾈｺ", true},
		{"사과", "사과는", true},
		{"cafe", "café", false},
		{"cafe\u0301", "CAFÉ", true},
		{"🐙", "an 🐙!", true},
		{":)", "fine :)", true},
		{"a", "b c", false},
		{"don't", "I don’t", true},
		{"don’t", "I don't", true},
		{"❤️", "with ❤", true},
		{"❤", "with ❤️", true},
		{"spoiler", "a spoi\u00ADler", true},
		{"spoiler", "a spoi\u200Bler", true},
		{"spoi\u200Bler", "a SPOILER", true},
		{`צה"ל`, "צה״ל", true},
		{"#example", "https://example.org/#example", false},
		{"#example", "see example.org/#example", false},
		{"#example", "https://example.org/#example #Example", true},
		{"＃نرم\u200cافزار", "#نرمافزار", true},
		{"#two words", "#Two words", true},
		{"@cat", "hi @cat", true},
		{"@cat", "https://example.org/@cat", false},
		{"@cat", "tom@cat.example", false},
	} {
		word, head := NormalWord(c.word)
		require.NotEmpty(t, head, c.word)
		require.Equal(t, c.has, hasAny(c.text, "something else"+betweenWords+word), "%q in %q", c.word, c.text)
		if c.has {
			require.True(t, slices.Contains(slices.Collect(parts(textOf(c.text).folded)), head), "the head %q is a part of %q", head, c.text)
		}
	}
}

// If a text has a word, the word's head is among the text's parts, by which the database finds it.
func FuzzMutedWords(f *testing.F) {
	f.Add("Cat", "my cat!")
	f.Add("猫 ca", "大猫 ca 9")
	f.Add("", " ")
	f.Fuzz(func(t *testing.T, word, text string) {
		word, head := NormalWord(word)
		if (head == "") != (word == "") || !strings.HasPrefix(word, head) {
			t.Fatalf("%q has the head %q", word, head)
		}
		post := textOf(text)
		if head != "" && post.has(word) && !slices.Contains(slices.Collect(parts(post.folded)), head) {
			t.Errorf("%q is in %q, and its head %q is not", word, text, head)
		}
	})
}
