package audit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ranking"
	"tideline/feed/refusal"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// ranked runs the test on every engine in a world that has rankings beside hot.
func ranked(t *testing.T, rankings map[string]string, test func(w *feedtest.World)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		test(feedtest.Idle(t, s, feedtest.Options{Policy: home.Policy{Rankings: rankings}}))
	})
}

// What a ranking makes of a post is told with each signal that its expression has, and no
// other, and the expression over them gives the score.
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
