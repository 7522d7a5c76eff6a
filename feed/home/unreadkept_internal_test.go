package home

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
)

// postsOf returns posts with these ids. A negative id stands for a post of user 9.
func postsOf(ids ...int64) (posts []*ent.Post) {
	for _, id := range ids {
		p := &ent.Post{ID: id, AuthorID: 1}
		if id < 0 {
			p = &ent.Post{ID: -id, AuthorID: 9}
		}
		posts = append(posts, p)
	}
	return posts
}

func TestKeptWithWhatFeedsHave(t *testing.T) {
	t.Parallel()
	kept := newUnreadPosts(9, unreadBasis{}, postsOf(50, -40, 30, -20))
	require.Equal(t, 2, kept.count())
	for name, c := range map[string]struct {
		ids     []int64 // the ids in the feeds
		lacking []int64
		read    []*ent.Post
		count   int
		have    int
	}{
		"the same":                   {[]int64{50, 40, 30, 20}, nil, nil, 2, 4},
		"nothing any more":           {nil, nil, nil, 0, 0},
		"without the oldest":         {[]int64{50, 40}, nil, nil, 1, 2},
		"without one between":        {[]int64{50, 40, 20}, nil, nil, 1, 3},
		"new ones":                   {[]int64{70, 60, 50, 40, 30, 20}, []int64{70, 60}, postsOf(-70, 60), 3, 6},
		"one that came between":      {[]int64{50, 45, 40, 30, 20}, []int64{45}, postsOf(45), 3, 5},
		"one below":                  {[]int64{50, 40, 30, 20, 10}, []int64{10}, postsOf(10), 3, 5},
		"hidden ones":                {[]int64{60, 50, 45, 40, 30, 20}, []int64{60, 45}, []*ent.Post{nil, nil}, 2, 4},
		"one hidden, one new":        {[]int64{60, 50, 45, 40, 30, 20}, []int64{60, 45}, append([]*ent.Post{nil}, postsOf(45)...), 3, 5},
		"all others, and an own one": {[]int64{49, 39, 29}, []int64{49, 39, 29}, postsOf(49, -39, 29), 2, 3},
	} {
		require.Equal(t, c.lacking, kept.lacks(c.ids), name)
		now := kept.with(9, c.ids, c.read)
		require.Equal(t, c.count, now.count(), name)
		require.Equal(t, c.have, now.len(), name)
		require.Equal(t, kept.with(9, c.ids, c.read), now.with(9, c.ids, make([]*ent.Post, len(now.lacks(c.ids)))), "%s: what was read is known", name)
	}
}

func TestKeptAboveTheMarker(t *testing.T) {
	t.Parallel()
	c := newUnread(Config{}, nil)
	at := unreadBasis{Epoch: 7, Generation: 2, Words: mutedWords{Count: 1, Last: 5}}
	_, ok := c.of(1, 0, at)
	require.False(t, ok)
	require.False(t, c.has(1))
	c.keep(1, newUnreadPosts(9, at, postsOf(50, -40, 30, -20)))
	require.True(t, c.has(1))
	for marker, want := range map[int64]int{0: 2, 19: 2, 20: 2, 30: 1, 39: 1, 40: 1, 49: 1, 50: 0, 60: 0} {
		k, ok := c.of(1, marker, at)
		require.True(t, ok)
		require.Equal(t, want, k.count(), "above %d", marker)
	}
	for name, other := range map[string]func(*unreadBasis){
		"another inbox":     func(b *unreadBasis) { b.Epoch++ },
		"a removal":         func(b *unreadBasis) { b.Generation++ },
		"another word":      func(b *unreadBasis) { b.Words = mutedWords{Count: 1, Last: 6} },
		"one word less":     func(b *unreadBasis) { b.Words.Count-- },
		"there is no inbox": func(b *unreadBasis) { b.Epoch = 0 },
	} {
		now := at
		other(&now)
		_, ok := c.of(1, 0, now)
		require.False(t, ok, name)
	}
	c.keep(2, newUnreadPosts(9, unreadBasis{}, postsOf(50)))
	require.False(t, c.has(2), "an inbox without a position")
	c.forget(1)
	require.False(t, c.has(1))
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, payload string
		certainly     bool
		authors       []int64
	}{
		{"post.changed", `{"post":1,"author":5}`, false, []int64{5}},
		{"post.changed", `{"post":1,"author":9}`, true, []int64{9}},
		{"author.stale", `{"author":5}`, false, []int64{5}},
		{"relation.changed", `{"users":[5,9],"first":true}`, true, nil},
		{"relation.changed", `{"users":[5,6]}`, false, nil},
		{"inboxes.stale", `{"users":[5]}`, true, nil},
		{"of a later version", `{}`, true, nil},
		{"relation.changed", `[]`, true, nil},
	} {
		var some concernedUsers
		some.add(c.kind, []byte(c.payload))
		require.Equal(t, c.certainly, some.everybody || slices.Contains(some.users, 9), "%s %s", c.kind, c.payload)
		require.Equal(t, c.authors, some.authors, "%s %s", c.kind, c.payload)
	}
}

// The memory is bounded, however many unread posts the users have.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	c := newUnread(Config{}, nil)
	many := make([]*ent.Post, 50_000)
	for i := range many {
		many[i] = &ent.Post{ID: int64(len(many) - i)}
	}
	by := unreadBasis{Epoch: 1}
	for user := range int64(100) {
		c.keep(user, newUnreadPosts(9, by, many))
		c.keep(user, newUnreadPosts(9, by, many)) // replaces the entry before
		c.keep(1000+user, newUnreadPosts(9, by, nil))
	}
	const fit = keptBytes / (keptOverhead + 8*50_000)
	require.False(t, c.has(99-fit), "it was asked for longest ago")
	require.True(t, c.has(99-fit+1))
	require.True(t, c.has(99))
}
