package unread

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/timeline"
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

func TestGrown(t *testing.T) {
	t.Parallel()
	at := timeline.Position{Epoch: 7, Offset: 3}
	ready := timeline.Part{Coverage: timeline.Coverage{State: timeline.Ready, Epoch: 7}}
	kept := Counted(9, at, by(50, -40, 30, -20))
	require.Equal(t, 2, kept.Count())
	for name, c := range map[string]struct {
		position timeline.Position
		growth   timeline.Growth
		want     int // -1: it is not right
	}{
		"the same":                   {at, timeline.Growth{Held: 4, Oldest: 20, Part: ready}, 2},
		"the oldest is forgotten":    {at, timeline.Growth{Held: 3, Oldest: 30, Part: ready}, 2},
		"two are forgotten":          {at, timeline.Growth{Held: 2, Oldest: 40, Part: ready}, 1},
		"all are forgotten":          {at, timeline.Growth{Part: ready}, 0},
		"one between has gone":       {at, timeline.Growth{Held: 3, Oldest: 20, Part: ready}, -1},
		"one came between":           {at, timeline.Growth{Held: 5, Oldest: 20, Part: ready}, -1},
		"one came, one forgotten":    {at, timeline.Growth{Held: 4, Oldest: 30, Part: ready}, -1},
		"the journal has gone on":    {timeline.Position{Epoch: 7, Offset: 4}, timeline.Growth{Held: 4, Oldest: 20, Part: ready}, -1},
		"the inbox is another one":   {timeline.Position{Epoch: 8, Offset: 3}, timeline.Growth{Held: 4, Oldest: 20, Part: ready}, -1},
		"the inbox is being built":   {at, timeline.Growth{Held: 4, Oldest: 20, Part: timeline.Part{Coverage: timeline.Coverage{State: timeline.Building}}}, -1},
		"there is no inbox any more": {timeline.Position{}, timeline.Growth{}, -1},
	} {
		got, ok := kept.Grown(c.position, c.growth)
		require.Equal(t, c.want >= 0, ok, name)
		if ok {
			require.Equal(t, c.want, got.Count(), name)
		}
	}
	more := kept.With(9, by(70, -60), 4)
	require.Equal(t, 4, more.Len(), "the newest")
	require.Equal(t, 2, more.Count(), "70 and 50 are of others")
}

func TestKeptAboveTheMarker(t *testing.T) {
	t.Parallel()
	c := New(nil)
	_, ok := c.Of(1, 0)
	require.False(t, ok)
	c.Keep(1, Counted(9, timeline.Position{Epoch: 7}, by(50, -40, 30, -20)))
	for marker, want := range map[int64]int{0: 2, 19: 2, 20: 2, 30: 1, 39: 1, 40: 1, 49: 1, 50: 0, 60: 0} {
		k, ok := c.Of(1, marker)
		require.True(t, ok)
		require.Equal(t, want, k.Count(), "above %d", marker)
	}
	c.Keep(2, Counted(9, timeline.Position{}, by(50)))
	_, ok = c.Of(2, 0)
	require.False(t, ok, "an inbox without a position")
	c.Forget(1)
	_, ok = c.Of(1, 0)
	require.False(t, ok)
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
		certainly, authors := concerns(c.kind, []byte(c.payload), 9)
		require.Equal(t, c.certainly, certainly, "%s %s", c.kind, c.payload)
		require.Equal(t, c.authors, authors, "%s %s", c.kind, c.payload)
	}
}
