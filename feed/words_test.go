package feed_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// says creates a post with the text and returns its id.
func says(w *feedtest.World, author session.Viewer, text string) int64 {
	w.Helper()
	public := schema.Public
	p, err := w.Feed.CreatePost(w.Ctx, author, feed.Draft{Text: text, Visibility: &public})
	require.NoError(w, err)
	return p.ID
}

// A muted word removes posts of others from the timeline, in reads from Redis and from SQL, and
// from nothing else.
func TestMutedWords(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		plain, cat := says(w, bob, "hello"), says(w, bob, "my cat")
		own := says(w, ann, "a cat of mine")
		w.Drain()
		all := feedtest.NewestFirst(plain, cat, own)
		without := feedtest.NewestFirst(plain, own)
		require.Equal(w, all, w.Timeline(ann, 10))

		word, u, err := w.Feed.MuteWord(w.Ctx, ann, "  CAT ")
		require.NoError(w, err)
		require.Equal(w, "cat", word)
		require.Equal(w, ann.ID, u.ID)
		_, _, err = w.Feed.MuteWord(w.Ctx, ann, "Cat")
		require.NoError(w, err, "again")
		require.Equal(w, without, w.Timeline(ann, 10))
		w.AwaitInbox(ann)
		later := says(w, bob, "another cat")
		w.Drain()
		require.Equal(w, without, w.Timeline(ann, 10), "from the inbox")
		require.Equal(w, without, w.Walk(ann, 1, nil), "page by page")
		ten := 10
		ranked, err := w.Home.Timeline(w.Ctx, ann, paging.Page{First: &ten}, home.Ranked)
		require.NoError(w, err)
		require.ElementsMatch(w, without, feedtest.PostIDs(ranked))
		unread, err := w.Home.Unread.Count(w.Ctx, ann)
		require.NoError(w, err)
		require.Equal(w, 1, unread)
		many, err := w.Home.Unread.Counts(w.Ctx, []int64{ann.ID, bob.ID})
		require.NoError(w, err)
		require.Equal(w, 1, many[ann.ID])

		// The inbox contains these posts anyway, and the audit does not report a difference.
		found, err := w.Audit.Verify(w.Ctx, ann.ID, 0)
		require.NoError(w, err)
		require.Empty(w, found.Missing)
		require.Empty(w, found.Extra)
		why, err := w.Feed.Post(w.Ctx, ann, cat)
		require.NoError(w, err)
		require.NotNil(w, why, "it is in the profile still")
		_, reason, err := w.Visibility.WhyHidden(w.Ctx, ann.ID, cat)
		require.NoError(w, err)
		require.Equal(w, "the viewer mutes a word of it", reason)
		_, reason, err = w.Visibility.WhyHidden(w.Ctx, ann.ID, plain)
		require.NoError(w, err)
		require.Empty(w, reason)

		words, err := w.Feed.MutedWords(w.Ctx, ann, ann.ID)
		require.NoError(w, err)
		require.Equal(w, []string{"cat"}, words)
		words, err = w.Feed.MutedWords(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		require.Nil(w, words, "nobody else knows")

		// An inbox that was built in the meantime contains them, too.
		_, err = w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		_, _, err = w.Feed.UnmuteWord(w.Ctx, ann, "cat")
		require.NoError(w, err)
		require.Equal(w, append([]int64{later}, all...), w.Timeline(ann, 10))
	})
}

func TestMutedWordsAreBounded(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.User("ann")
		mute := func(v session.Viewer, word string) refusal.Code {
			_, _, err := w.Feed.MuteWord(w.Ctx, v, word)
			return refusal.CodeOf(err)
		}
		require.Equal(w, refusal.Unauthenticated, mute(session.Viewer{}, "cat"))
		for _, bad := range []string{"", "  ", "\u200B", "\u2800", "a\nb", "a\u2028b", "a\x00", "\xff", strings.Repeat("a", feed.MaxMutedWord+1),
			strings.Repeat("a", feed.MaxMutedWord-1) + "ß", strings.Repeat("ﷺ", feed.MaxMutedWord/2)} {
			require.Equal(w, refusal.BadInput, mute(ann, bad), "%q", bad)
		}
		for n := range feed.MaxMutedWords {
			require.Empty(w, mute(ann, fmt.Sprint("word", n)))
		}
		require.Equal(w, refusal.BadInput, mute(ann, "one more"))
		require.Empty(w, mute(ann, "word0"), "it is muted already")
		_, _, err := w.Feed.UnmuteWord(w.Ctx, ann, "word7")
		require.NoError(w, err)
		require.Empty(w, mute(ann, "one more"))
	})
}
