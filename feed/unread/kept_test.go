package unread

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
)

// by returns posts of these ids; a negative one is of user 9.
func by(ids ...int64) (posts []*ent.Post) {
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
	kept := Counted(9, Basis{}, by(50, -40, 30, -20))
	require.Equal(t, 2, kept.Count())
	for name, c := range map[string]struct {
		ids     []int64 // that the feeds have
		lacking []int64
		read    []*ent.Post
		count   int
		have    int
	}{
		"the same":                   {[]int64{50, 40, 30, 20}, nil, nil, 2, 4},
		"nothing any more":           {nil, nil, nil, 0, 0},
		"without the oldest":         {[]int64{50, 40}, nil, nil, 1, 2},
		"without one between":        {[]int64{50, 40, 20}, nil, nil, 1, 3},
		"new ones":                   {[]int64{70, 60, 50, 40, 30, 20}, []int64{70, 60}, by(-70, 60), 3, 6},
		"one that came between":      {[]int64{50, 45, 40, 30, 20}, []int64{45}, by(45), 3, 5},
		"one below":                  {[]int64{50, 40, 30, 20, 10}, []int64{10}, by(10), 3, 5},
		"hidden ones":                {[]int64{60, 50, 45, 40, 30, 20}, []int64{60, 45}, []*ent.Post{nil, nil}, 2, 4},
		"one hidden, one new":        {[]int64{60, 50, 45, 40, 30, 20}, []int64{60, 45}, append([]*ent.Post{nil}, by(45)...), 3, 5},
		"all others, and an own one": {[]int64{49, 39, 29}, []int64{49, 39, 29}, by(49, -39, 29), 2, 3},
	} {
		require.Equal(t, c.lacking, kept.Lacks(c.ids), name)
		now := kept.With(9, c.ids, c.read)
		require.Equal(t, c.count, now.Count(), name)
		require.Equal(t, c.have, now.Len(), name)
		require.Equal(t, kept.With(9, c.ids, c.read), now.With(9, c.ids, make([]*ent.Post, len(now.Lacks(c.ids)))), "%s: what was read is known", name)
	}
}

func TestKeptAboveTheMarker(t *testing.T) {
	t.Parallel()
	c := New(nil, "")
	at := Basis{Epoch: 7, Generation: 2, Words: Words{Count: 1, Last: 5}}
	_, ok := c.Of(1, 0, at)
	require.False(t, ok)
	require.False(t, c.Has(1))
	c.Keep(1, Counted(9, at, by(50, -40, 30, -20)))
	require.True(t, c.Has(1))
	for marker, want := range map[int64]int{0: 2, 19: 2, 20: 2, 30: 1, 39: 1, 40: 1, 49: 1, 50: 0, 60: 0} {
		k, ok := c.Of(1, marker, at)
		require.True(t, ok)
		require.Equal(t, want, k.Count(), "above %d", marker)
	}
	for name, other := range map[string]func(*Basis){
		"another inbox":     func(b *Basis) { b.Epoch++ },
		"a removal":         func(b *Basis) { b.Generation++ },
		"another word":      func(b *Basis) { b.Words = Words{Count: 1, Last: 6} },
		"one word less":     func(b *Basis) { b.Words.Count-- },
		"there is no inbox": func(b *Basis) { b.Epoch = 0 },
	} {
		now := at
		other(&now)
		_, ok := c.Of(1, 0, now)
		require.False(t, ok, name)
	}
	c.Keep(2, Counted(9, Basis{}, by(50)))
	require.False(t, c.Has(2), "an inbox without a position")
	c.Forget(1)
	require.False(t, c.Has(1))
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
		var some concerned
		some.add(c.kind, []byte(c.payload))
		require.Equal(t, c.certainly, some.everybody || slices.Contains(some.users, 9), "%s %s", c.kind, c.payload)
		require.Equal(t, c.authors, some.authors, "%s %s", c.kind, c.payload)
	}
}

// However much the users have unread, the memory is bounded.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	c := New(nil, "")
	many := make([]*ent.Post, 50_000)
	for i := range many {
		many[i] = &ent.Post{ID: int64(len(many) - i)}
	}
	by := Basis{Epoch: 1}
	for user := range int64(100) {
		c.Keep(user, Counted(9, by, many))
		c.Keep(user, Counted(9, by, many)) // in place of the one before
		c.Keep(1000+user, Counted(9, by, nil))
	}
	const fit = keptBytes / (keptOverhead + 8*50_000)
	require.False(t, c.Has(99-fit), "it was asked for longest ago")
	require.True(t, c.Has(99-fit+1))
	require.True(t, c.Has(99))
}
