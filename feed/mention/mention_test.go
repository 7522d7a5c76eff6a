package mention_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/mention"
)

// The app's implementation of the rule is tested with the same cases, see web/browsertest.
func TestMentionsOfTexts(t *testing.T) {
	file, err := os.ReadFile("testdata/cases.json")
	require.NoError(t, err)
	var cases []struct {
		Text     string
		Mentions []mention.Mention
	}
	require.NoError(t, json.Unmarshal(file, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		assert.Equal(t, c.Mentions, mention.In(c.Text), "%q", c.Text)
	}
}

func TestTheFirstMentionsOfATextCount(t *testing.T) {
	mentions := mention.In(strings.Repeat("🌊@ada ", 2*mention.Max))
	require.Len(t, mentions, mention.Max)
	for i, m := range mentions {
		require.Equal(t, mention.Mention{Handle: "ada", Start: 6*i + 1, End: 6*i + 5}, m)
	}
}

func TestTheLongestHandleIsAMention(t *testing.T) {
	longest := strings.Repeat("a", account.MaxHandle)
	require.Equal(t, []mention.Mention{{Handle: longest, End: account.MaxHandle + 1}}, mention.In("@"+longest))
	require.Empty(t, mention.In("@"+longest+"a"))
	require.Empty(t, mention.In("@"+longest+"ａ"))
}

// Every mention is the handle of a possible user, and its range has the sign and this handle.
func FuzzMentions(f *testing.F) {
	for _, text := range []string{"@ada", "＠Ａｄａ_９", "你好@ada你好", "https://a.b/@c @d", "@@a @a@b.c", "1️⃣@a\u200db", "\r\n👩\u200d👩\u200d👧@ada", "@\xffa@b", "@ａhttps://a.b/?@c", "@ﬁ @ada\u0301"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mentions := mention.In(text)
		require.LessOrEqual(t, len(mentions), mention.Max)
		characters, end := []rune(text), 0
		for _, m := range mentions {
			require.GreaterOrEqual(t, m.Start, end)
			end = m.End
			require.Contains(t, "@＠", string(characters[m.Start]))
			handle, err := account.Handle(string(characters[m.Start+1 : m.End]))
			require.NoError(t, err, "%q", text)
			require.Equal(t, m.Handle, handle)
			require.Equal(t, []mention.Mention{{Handle: handle, End: 1 + utf8.RuneCountInString(handle)}}, mention.In("@"+handle))
		}
	})
}
