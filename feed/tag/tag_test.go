package tag

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/feed/refusal"
)

// The app's implementation of the rule is tested with the same cases, see web/browsertest.
func TestTagsOfTexts(t *testing.T) {
	file, err := os.ReadFile("testdata/cases.json")
	require.NoError(t, err)
	var cases []struct {
		Text          string
		Written, Tags []string
	}
	require.NoError(t, json.Unmarshal(file, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		assert.Equal(t, c.Written, append([]string{}, slices.Collect(writtenTags(c.Text))...), c.Text)
		assert.Equal(t, c.Tags, In(c.Text), c.Text)
	}
}

func TestAPostIsFoundByItsFirstTags(t *testing.T) {
	var text strings.Builder
	for i := range 2 * MaxPerPost {
		fmt.Fprintf(&text, "#a #tag%d ", i)
	}
	tags := In(text.String())
	require.Len(t, tags, MaxPerPost)
	require.Equal(t, []string{"a", "tag0", "tag1"}, tags[:3])
}

func TestTagsThatAreAskedFor(t *testing.T) {
	for text, want := range map[string]string{"tide": "tide", "#Tide": "tide", "＃潮水": "潮水", "ＴＩＤＥ": "tide", "42nd": "42nd"} {
		tag, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, tag, text)
	}
	for _, text := range []string{"", "#", "##tide", "42", "_", "two words", "rock-pool", "tide!", "\x00", "tide\xff", "\u0301a", "ﷺ", strings.Repeat("a", MaxLength+1)} {
		_, err := Parse(text)
		require.Equal(t, refusal.BadInput, refusal.CodeOf(err), "%q", text)
	}
}

// Parse finds every tag that In finds, and the tag fits into its column.
func FuzzTags(f *testing.F) {
	for _, text := range []string{"#tide", "＃Straße #ΐ", "https://a.b/#c #d", "#İ #ŉ #ǰ", "#ͅa", "#️⃣", "#\xffa", "a#b##c#", "#ꮮ", "#Ꮮ"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tags := In(text)
		require.LessOrEqual(t, len(tags), MaxPerPost)
		for _, tag := range tags {
			require.LessOrEqual(t, len(tag), 256)
			again, err := Parse(tag)
			require.NoError(t, err, "%q", tag)
			require.Equal(t, tag, again)
			require.Equal(t, []string{tag}, In("#"+tag))
		}
	})
}
