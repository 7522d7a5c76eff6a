package browsertest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/mention"
	"tideline/storage/storagetest"
)

// The app links exactly the mentions that the server finds. Both are tested with the same cases.
func TestAppLinksMentions(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	file, err := os.ReadFile("../../feed/mention/testdata/cases.json")
	require.NoError(t, err)
	var cases []struct {
		Text     string
		Mentions []mention.Mention
	}
	require.NoError(t, json.Unmarshal(file, &cases))
	texts := []string{strings.Repeat("@ada ", 2*mention.Max)}
	for _, c := range cases {
		texts = append(texts, c.Text)
	}
	a := profileWith(t, texts)
	found := a.value(`JSON.stringify([...document.querySelectorAll('article .text')].reverse().map((text) => ({
		text: text.textContent,
		mentions: [...text.querySelectorAll('a[href^="/@"]')].map((link) => {
			const before = new Range()
			before.setStart(text, 0)
			before.setEndBefore(link)
			const start = [...before.toString()].length
			return { handle: link.pathname.slice('/@'.length), start, end: start + [...link.textContent].length }
		}),
	})))`)
	shown := cases[:0:0]
	require.NoError(t, json.Unmarshal([]byte(found.(string)), &shown))
	require.Len(t, shown, len(texts))
	require.Equal(t, mention.In(texts[0]), shown[0].Mentions)
	for i, c := range cases {
		post := shown[i+1]
		if post.Text == c.Text {
			require.Equal(t, c.Mentions, post.Mentions, "%q", c.Text)
			continue
		}
		// The server changes line ends and removes white space around a post.
		require.Equal(t, strings.TrimSpace(strings.ReplaceAll(c.Text, "\r\n", "\n")), post.Text)
		require.Equal(t, mention.In(post.Text), post.Mentions, "%q", c.Text)
	}
}
