package audit_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/refusal"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// ranked runs the test on every engine, with a fixture that has rankings in addition to hot.
func ranked(t *testing.T, rankings map[string]string, test func(w *feedtest.World)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		test(feedtest.Idle(t, s, feedtest.Options{Policy: home.Policy{Rankings: rankings}}))
	})
}

// Scores reports exactly the signals of a ranking's expression, and the expression over them gives
// the score.
func TestScores(t *testing.T) {
	t.Parallel()
	near := "log10(max(likes, 1)) + 2 * affinity + data.price - age / 3600 + own"
	ranked(t, map[string]string{"near": near, "none": "1 / 0"}, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "x", Data: new(`{"price":12.5}`)})
		require.NoError(w, err)
		for _, v := range append(w.Users(9), ann) {
			_, err := w.Feed.LikePost(w.Ctx, v, p.ID)
			require.NoError(w, err)
		}
		scores, err := w.Audit.Scores(w.Ctx, ann.ID, p.ID, "")
		require.NoError(w, err)
		require.Len(w, scores, 3)
		values := func(s audit.Score) map[string]float64 {
			v := map[string]float64{}
			for _, signal := range s.Signals {
				v[signal.Name] = signal.Value
			}
			return v
		}
		hot := values(scores[0])
		require.Equal(w, ranking.Hot, scores[0].Ranking)
		require.Equal(w, ranking.HotExpression(ranking.DefaultDecay), scores[0].Expression)
		require.Len(w, hot, 2)
		require.Equal(w, 1+hot["posted"]/45000, scores[0].Score)
		require.Equal(w, near, scores[1].Expression)
		of := values(scores[1])
		require.Less(w, of["age"], time.Hour.Seconds())
		require.Equal(w, map[string]float64{"likes": 10, "affinity": 0.2, "data.price": 12.5, "age": of["age"], "own": 0}, of)
		require.Equal(w, math.Log10(10)+2*0.2+12.5-of["age"]/3600+0, scores[1].Score)
		require.Equal(w, audit.Score{"none", "1 / 0", ranking.Scored{Score: 1e300, Signals: []ranking.Signal{}}}, scores[2])

		scores, err = w.Audit.Scores(w.Ctx, bob.ID, p.ID, "near")
		require.NoError(w, err)
		require.Len(w, scores, 1)
		require.Equal(w, 1.0, values(scores[0])["own"])
		require.Zero(w, values(scores[0])["affinity"], "signals are the viewer's own")

		for _, name := range []string{"", "near"} {
			scores, err = w.Audit.Scores(w.Ctx, w.User("eve"+name).ID, p.ID, name)
			require.NoError(w, err)
			require.Empty(w, scores, "it is not in that timeline")
		}
		_, _, err = w.Feed.MuteWord(w.Ctx, ann, "x")
		require.NoError(w, err)
		scores, err = w.Audit.Scores(w.Ctx, ann.ID, p.ID, "")
		require.NoError(w, err)
		require.Empty(w, scores, "a muted word hides it")
		_, err = w.Audit.Scores(w.Ctx, ann.ID, p.ID, "liked")
		require.Equal(w, refusal.BadInput, refusal.CodeOf(err))
		require.ErrorContains(w, err, "there are hot, near, none")
	})
}

// A replay shows both orders as pages show them, for the same posts. It makes nobody active, and
// does not count as a read.
func TestReplayIsWhatPagesShow(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var reads atomic.Int64
		w := feedtest.Idle(t, s, feedtest.Options{
			Policy:  home.Policy{Rankings: map[string]string{"near": "affinity + likes / 100", "flat": "1"}},
			Observe: func(bool) { reads.Add(1) },
		})
		u := w.Users(4)
		ann := u[0]
		var posts []int64
		for _, author := range u[1:] {
			w.Follow(ann, author)
			posts = append(posts, w.History(author, 3)...)
		}
		hidden, err := w.Feed.CreatePost(w.Ctx, u[1], feed.Draft{Text: "a secret"})
		require.NoError(t, err)
		_, _, err = w.Feed.MuteWord(w.Ctx, ann, "secret")
		require.NoError(t, err)
		for _, id := range []int64{posts[1], posts[7], posts[7]} {
			_, err := w.Feed.LikePost(w.Ctx, ann, id)
			require.NoError(t, err)
		}
		_, err = w.Feed.LikePost(w.Ctx, u[2], posts[0])
		require.NoError(t, err)

		before := reads.Load()
		r, err := w.Audit.Replay(w.Ctx, ann.ID, "near", "")
		require.NoError(t, err)
		require.Equal(t, before, reads.Load())
		in, err := w.Audit.Inspect(w.Ctx, ann.ID)
		require.NoError(t, err)
		require.False(t, in.Active)
		require.Equal(t, []string{"near", ranking.Hot}, []string{r.Rank, r.Against})

		pages := func(w *feedtest.World, by string, got []audit.Replayed) {
			c, err := w.Home.TimelineWith(w.Ctx, ann, paging.Page{First: new(50)}, home.Ranked, by, 0)
			require.NoError(w, err)
			require.Len(w, got, len(posts))
			require.NotContains(w, feedtest.PostIDs(c), hidden.ID)
			for i, e := range c.Edges {
				require.Equal(w, e.Node.ID, got[i].Post.ID, "%s, place %d", by, i+1)
				require.Equal(w, i+1, got[i].At)
				require.Equal(w, e.Score, got[i].Score)
			}
		}
		pages(w, "near", r.Posts)
		swapped := slices.Clone(r.Posts)
		for i, p := range swapped {
			swapped[i] = audit.Replayed{Post: p.Post, At: p.AtAgainst, Score: p.ScoreAgainst}
		}
		slices.SortFunc(swapped, func(a, b audit.Replayed) int { return a.At - b.At })
		pages(w, ranking.Hot, swapped)

		r, err = w.Audit.Replay(w.Ctx, ann.ID, "flat", "near") // with an inbox
		require.NoError(t, err)
		pages(w, "flat", r.Posts)

		for _, names := range [][2]string{{"liked", "hot"}, {"near", "liked"}} {
			_, err = w.Audit.Replay(w.Ctx, ann.ID, names[0], names[1])
			require.Equal(t, refusal.BadInput, refusal.CodeOf(err))
			require.ErrorContains(t, err, "there are hot, flat, near")
		}
		r, err = w.Audit.Replay(w.Ctx, w.User("new").ID, "near", "hot")
		require.NoError(t, err)
		require.Empty(t, r.Posts)
		require.Equal(t, 1.0, r.Tau())
		require.Zero(t, r.Shared(20))
	})
}

// A replay covers as many of the newest posts as a ranked timeline.
func TestReplayOfLongTimeline(t *testing.T) {
	t.Parallel()
	ranked(t, map[string]string{"own": "own"}, func(w *feedtest.World) {
		ann := w.User("ann")
		posts := w.History(ann, feedtest.InboxCap+5)
		r, err := w.Audit.Replay(w.Ctx, ann.ID, "own", "hot")
		require.NoError(w, err)
		var got []int64
		for _, p := range r.Posts {
			got = append(got, p.Post.ID)
		}
		require.Equal(w, feedtest.NewestFirst(posts[5:]...), got)
		require.Equal(w, 1.0, r.Tau())
		require.Equal(w, feedtest.InboxCap, r.Shared(feedtest.InboxCap+7))
	})
}

func TestTau(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		against []int
		tau     float64
		shared  int // among the first two
	}{
		{[]int{1, 2, 3, 4}, 1, 2},
		{[]int{2, 1, 3, 4}, 2.0 / 3, 2},
		{[]int{3, 2, 1}, -1, 1},
		{[]int{2, 4, 1, 3}, 0, 1}, // three of six pairs are reversed
		{[]int{1}, 1, 1},
	} {
		r := audit.Replay{}
		for i, at := range c.against {
			r.Posts = append(r.Posts, audit.Replayed{At: i + 1, AtAgainst: at})
		}
		require.InDelta(t, c.tau, r.Tau(), 1e-12, c.against)
		require.Equal(t, c.shared, r.Shared(2), c.against)
	}
}
