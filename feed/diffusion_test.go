package feed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// eachAbove is each with a threshold between push and pull, and no waiting at it.
func eachAbove(t *testing.T, above int, test func(w *world)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, func(c *feed.Config) {
			c.PullAbove, c.PushAndPullFor, c.MergedListFor = above, -time.Second, time.Nanosecond
		})
		w.work()
		test(w)
	})
}

func (w *world) rebalance() {
	w.t.Helper()
	require.NoError(w.t, w.feed.Rebalance(w.ctx))
}

func (w *world) fanOutMode(v feed.Viewer) user.FanOutMode {
	w.t.Helper()
	u, err := w.s.DB.User.Get(w.ctx, v.ID)
	require.NoError(w.t, err)
	return u.FanOutMode
}

// An author who crosses the threshold, up and down again, with posts at every
// stage, leaves no hole and no double in any follower's timeline.
func TestCrossingTheThreshold(t *testing.T) {
	t.Parallel()
	eachAbove(t, 5, func(w *world) {
		u := w.users(9)
		star, fans := u[0], u[1:]
		var posts []int64
		check := func(stage string) {
			w.t.Helper()
			posts = append(posts, w.post(star, schema.Public))
			w.settle()
			for _, fan := range fans[:4] {
				require.Equal(w.t, newestFirst(posts...), w.walk(fan, 3, nil), stage)
			}
		}
		for _, fan := range fans[:4] {
			w.follow(fan, star)
			w.ready(fan)
		}
		w.rebalance()
		require.Equal(w.t, user.FanOutModePUSH, w.fanOutMode(star))
		check("push")
		for _, fan := range fans[4:] {
			w.follow(fan, star)
		}
		w.rebalance()
		require.Equal(w.t, user.FanOutModePUSH_TO_PULL, w.fanOutMode(star))
		check("rising")
		w.rebalance()
		require.Equal(w.t, user.FanOutModePULL, w.fanOutMode(star))
		check("pull")
		ids, _, err := w.tl.Page(w.ctx, timeline.Inbox(fans[0].ID), timeline.Range{Limit: 10})
		require.NoError(w.t, err)
		require.NotContains(w.t, ids, posts[len(posts)-1], "it is not pushed")
		check("pull, from the outbox")

		_, err = w.feed.Unfollow(w.ctx, fans[7], star.ID)
		require.NoError(w.t, err)
		w.settle()
		w.rebalance()
		require.Equal(w.t, user.FanOutModePULL, w.fanOutMode(star), "no flapping near the threshold")
		for _, fan := range fans[3:7] {
			_, err := w.feed.Unfollow(w.ctx, fan, star.ID)
			require.NoError(w.t, err)
		}
		fans = append(fans[:3:3], fans[2])
		w.rebalance()
		w.settle()
		require.Equal(w.t, user.FanOutModePUSH, w.fanOutMode(star))
		ids, _, err = w.tl.Page(w.ctx, timeline.Inbox(fans[0].ID), timeline.Range{Limit: 10})
		require.NoError(w.t, err)
		require.Equal(w.t, newestFirst(posts...), ids, "the inbox has what was not pushed")
		check("push again")
	})
}

// The job of an earlier way back to push, done late or once more, does not end a
// later one, whose inboxes do not have yet what they missed.
func TestLateJobDoesNotEndALaterFall(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now()
		w := newWorld(t, s, func(c *feed.Config) { c.PullAbove, c.Now = 5, func() time.Time { return now } })
		star := w.user("star")
		var jobs []feed.AuthorJob
		for range 2 {
			now = now.Add(time.Hour)
			require.NoError(t, s.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.ctx))
			w.rebalance()
			w.rebalance()
			require.Equal(t, user.FanOutModePULL_TO_PUSH, w.fanOutMode(star))
			jobs = append(jobs, feed.AuthorJob{Author: star.ID, Since: now.UnixMilli()})
		}
		queued, err := s.DB.Job.Query().Count(w.ctx)
		require.NoError(t, err)
		require.Equal(t, 2, queued, "one for each way back, however often the authors are looked at")
		require.NoError(t, w.feed.FinishReturnToPush(w.ctx, jobs[0]))
		require.Equal(t, user.FanOutModePULL_TO_PUSH, w.fanOutMode(star))
		require.NoError(t, w.feed.FinishReturnToPush(w.ctx, jobs[1]))
		require.Equal(t, user.FanOutModePUSH, w.fanOutMode(star))
	})
}

// While an author crosses the threshold again and again, posting all the time,
// no read has a post twice, none loses a post that an earlier one had, and in the
// end nobody has missed any.
func TestCrossingUnderTraffic(t *testing.T) {
	t.Parallel()
	eachAbove(t, 5, func(w *world) {
		u := w.users(9)
		star, loyal, fickle := u[0], u[1:4], u[4:]
		for _, fan := range loyal {
			w.follow(fan, star)
			w.ready(fan)
		}
		over := make(chan struct{})
		posted := make(chan []int64, 1)
		go func() {
			var ids []int64
			defer func() { posted <- ids }()
			public := schema.Public
			for {
				select {
				case <-over:
					return
				case <-time.After(2 * time.Millisecond):
					p, err := w.feed.CreatePost(w.ctx, star, feed.Draft{Text: "and on", Visibility: &public})
					if err != nil {
						return // missed below
					}
					ids = append(ids, p.ID)
				}
			}
		}()
		had := map[feed.Viewer][]int64{}
		look := func() {
			for _, fan := range loyal {
				now := w.walk(fan, 50, nil)
				require.Equal(w.t, newestFirst(now...), now)
				require.Equal(w.t, slices.Compact(slices.Clone(now)), now, "none twice")
				for _, id := range had[fan] {
					require.Contains(w.t, now, id, "none is lost again")
				}
				had[fan] = now
			}
		}
		seen := map[user.FanOutMode]bool{}
		step := func() {
			w.rebalance()
			seen[w.fanOutMode(star)] = true
			look()
		}
		for range 2 {
			for _, fan := range fickle {
				w.follow(fan, star)
			}
			step()
			step()
			for _, fan := range fickle {
				_, err := w.feed.Unfollow(w.ctx, fan, star.ID)
				require.NoError(w.t, err)
			}
			step()
			require.Eventually(w.t, func() bool { return w.fanOutMode(star) == user.FanOutModePUSH }, 30*time.Second, 5*time.Millisecond)
			look()
		}
		close(over)
		all := newestFirst(<-posted...)
		w.settle()
		require.Greater(w.t, len(all), 10)
		require.True(w.t, seen[user.FanOutModePUSH_TO_PULL] && seen[user.FanOutModePULL])
		for _, fan := range loyal {
			require.Equal(w.t, all, w.walk(fan, 50, nil))
		}
	})
}

// Pure push and pure pull give the same timelines.
func TestPushAndPullAgree(t *testing.T) {
	t.Parallel()
	for name, above := range map[string]int{"never": feed.NeverPull, "always": feed.AlwaysPull, "hybrid": 2} {
		t.Run(name, func(t *testing.T) {
			eachAbove(t, above, func(w *world) {
				u := w.users(5)
				for i, fan := range u {
					for j, star := range u {
						if i != j && (i+j)%3 != 0 {
							w.follow(fan, star)
						}
					}
					w.ready(fan)
				}
				want := map[feed.Viewer][]int64{}
				for i := range 40 {
					if i%8 == 0 {
						w.settle()
						w.rebalance()
					}
					id := w.post(u[i%5], []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private}[i%4])
					for j, fan := range u {
						sees := fan == u[i%5] || i%4 != 3 && (i%5+j)%3 != 0 // every follow is mutual
						if sees {
							want[fan] = append(want[fan], id)
						}
					}
				}
				w.settle()
				for _, fan := range u {
					require.Equal(w.t, newestFirst(want[fan]...), w.walk(fan, 7, nil))
				}
			})
		})
	}
}

func TestDeliveryReceipt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.users(12)
		for i, fan := range u[1:] {
			w.follow(fan, u[0])
			if i < 4 {
				w.ready(fan)
			}
		}
		w.settle()
		id := w.post(u[0], schema.Public)
		w.settle()
		p, err := w.feed.Post(w.ctx, u[0], id)
		require.NoError(w.t, err)
		receipts, err := w.feed.Deliveries(w.ctx, u[0], []*ent.Post{p})
		require.NoError(w.t, err)
		r := receipts[0]
		require.Equal(w.t, [4]any{4, 0, 7, true}, [4]any{r.Pushed, r.Pulled, r.Skipped, r.Done})
		require.LessOrEqual(w.t, r.FirstLag, r.LastLag)
		receipts, err = w.feed.Deliveries(w.ctx, u[1], []*ent.Post{p})
		require.NoError(w.t, err)
		require.Nil(w.t, receipts[0], "the author's alone")
	})
}
