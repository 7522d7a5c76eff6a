package home_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// eachAbove is each with a threshold between push and pull, and without the waiting time in
// PUSH_TO_PULL.
func eachAbove(t *testing.T, above int, test func(w *world)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s, feedtest.Options{Policy: home.Policy{PullAbove: above, PushAndPullFor: -time.Second, MergedListFor: time.Nanosecond}})
		w.Work()
		test(w)
	})
}

// rebalance moves each author one step, as the balancer and the end of a fan-out do. It folds the
// follower counts first: a follow that met a job's lock on the author's row has left a delta.
func (w *world) rebalance(authors ...session.Viewer) {
	w.Helper()
	_, err := rows.Fold(w.Ctx, w.Stores.DB)
	require.NoError(w, err)
	require.NoError(w, w.Home.FanOutModes.Rebalance(w.Ctx))
	for _, author := range authors {
		u, err := w.Stores.DB.User.Get(w.Ctx, author.ID)
		require.NoError(w, err)
		require.NoError(w, w.Home.FanOutModes.CrossThreshold(w.Ctx, u))
	}
}

func (w *world) fanOutMode(v session.Viewer) user.FanOutMode {
	w.Helper()
	u, err := w.Stores.DB.User.Get(w.Ctx, v.ID)
	require.NoError(w, err)
	return u.FanOutMode
}

// An author crosses the threshold upwards and downwards and posts in every fan-out mode. No
// follower's timeline misses or repeats a post.
func TestCrossingTheThreshold(t *testing.T) {
	t.Parallel()
	eachAbove(t, 5, func(w *world) {
		u := w.Users(9)
		star, fans := u[0], u[1:]
		var posts []int64
		check := func(stage string) {
			w.Helper()
			posts = append(posts, w.Post(star, schema.Public))
			w.Drain()
			for _, fan := range fans[:4] {
				require.Equal(w, feedtest.NewestFirst(posts...), w.Walk(fan, 3, nil), stage)
			}
		}
		for _, fan := range fans[:4] {
			w.Follow(fan, star)
			w.AwaitInbox(fan)
		}
		w.rebalance(star)
		require.Equal(w, user.FanOutModePUSH, w.fanOutMode(star))
		check("push")
		for _, fan := range fans[4:] {
			w.Follow(fan, star)
		}
		w.rebalance(star)
		require.Equal(w, user.FanOutModePUSH_TO_PULL, w.fanOutMode(star))
		check("rising")
		w.rebalance(star)
		require.Equal(w, user.FanOutModePULL, w.fanOutMode(star))
		check("pull")
		ids, _, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(fans[0].ID), timeline.Range{Limit: 10})
		require.NoError(w, err)
		require.NotContains(w, ids, posts[len(posts)-1], "it is not pushed")
		check("pull, from the outbox")

		_, err = w.Feed.Unfollow(w.Ctx, fans[7], star.ID)
		require.NoError(w, err)
		w.Drain()
		w.rebalance(star)
		require.Equal(w, user.FanOutModePULL, w.fanOutMode(star), "no flapping near the threshold")
		for _, fan := range fans[3:7] {
			_, err := w.Feed.Unfollow(w.Ctx, fan, star.ID)
			require.NoError(w, err)
		}
		fans = append(fans[:3:3], fans[2])
		w.rebalance(star)
		w.Drain()
		require.Equal(w, user.FanOutModePUSH, w.fanOutMode(star))
		ids, _, err = w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(fans[0].ID), timeline.Range{Limit: 10})
		require.NoError(w, err)
		require.Equal(w, feedtest.NewestFirst(posts...), ids, "the inbox has what was not pushed")
		check("push again")
	})
}

// The job of an earlier return to push runs late or twice. It does not end a later return, whose
// inboxes still lack posts.
func TestLateJobDoesNotEndALaterReturn(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var clock atomic.Pointer[time.Time]
		now := time.Now()
		clock.Store(&now)
		w := newWorld(t, s, feedtest.Options{Policy: home.Policy{PullAbove: 5}, Now: func() time.Time { return *clock.Load() }})
		star := w.User("star")
		var jobs []job.Author
		for range 2 {
			now := clock.Load().Add(time.Hour)
			clock.Store(&now)
			require.NoError(t, s.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
			w.rebalance(star)
			w.rebalance(star)
			require.Equal(t, user.FanOutModePULL_TO_PUSH, w.fanOutMode(star))
			jobs = append(jobs, job.Author{Author: star.ID, Since: now.UnixMilli()})
		}
		queued, err := s.DB.Job.Query().Count(w.Ctx)
		require.NoError(t, err)
		require.Equal(t, 2, queued, "one for each way back, however often the authors are looked at")
		require.NoError(t, w.Home.FanOutModes.FinishReturnToPush(w.Ctx, jobs[0]))
		require.Equal(t, user.FanOutModePULL_TO_PUSH, w.fanOutMode(star))
		require.NoError(t, w.Home.FanOutModes.FinishReturnToPush(w.Ctx, jobs[1]))
		require.Equal(t, user.FanOutModePUSH, w.fanOutMode(star))
	})
}

// An author crosses the threshold again and again and posts all the time. No read has a post
// twice, no read loses a post that an earlier read had, and in the end no reader has missed a
// post.
func TestCrossingUnderTraffic(t *testing.T) {
	t.Parallel()
	eachAbove(t, 5, func(w *world) {
		u := w.Users(9)
		star, loyal, fickle := u[0], u[1:4], u[4:]
		for _, fan := range loyal {
			w.Follow(fan, star)
			w.AwaitInbox(fan)
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
					p, err := w.Feed.CreatePost(w.Ctx, star, feed.Draft{Text: "and on", Visibility: &public})
					if err != nil {
						return // the check below finds any missed post
					}
					ids = append(ids, p.ID)
				}
			}
		}()
		had := map[session.Viewer][]int64{}
		look := func() {
			for _, fan := range loyal {
				now := w.Walk(fan, 50, nil)
				require.Equal(w, feedtest.NewestFirst(now...), now)
				require.Equal(w, slices.Compact(slices.Clone(now)), now, "none twice")
				for _, id := range had[fan] {
					require.Contains(w, now, id, "none is lost again")
				}
				had[fan] = now
			}
		}
		until := func(mode user.FanOutMode) { // fan-outs and the balancer move the author
			w.Helper()
			require.Eventually(w, func() bool {
				w.rebalance()
				look()
				return w.fanOutMode(star) == mode
			}, 30*time.Second, 5*time.Millisecond)
		}
		for range 2 {
			for _, fan := range fickle {
				w.Follow(fan, star)
			}
			until(user.FanOutModePULL)
			for _, fan := range fickle {
				_, err := w.Feed.Unfollow(w.Ctx, fan, star.ID)
				require.NoError(w, err)
			}
			until(user.FanOutModePUSH)
		}
		close(over)
		all := feedtest.NewestFirst(<-posted...)
		w.Drain()
		require.Greater(w, len(all), 10)
		for _, fan := range loyal {
			require.Equal(w, all, w.Walk(fan, 50, nil))
		}
	})
}

// Pure push and pure pull give the same timelines.
func TestPushAndPullAgree(t *testing.T) {
	t.Parallel()
	for name, above := range map[string]int{"never": home.NeverPull, "always": home.AlwaysPull, "hybrid": 2} {
		t.Run(name, func(t *testing.T) {
			eachAbove(t, above, func(w *world) {
				u := w.Users(5)
				for i, fan := range u {
					for j, star := range u {
						if i != j && (i+j)%3 != 0 {
							w.Follow(fan, star)
						}
					}
					w.AwaitInbox(fan)
				}
				want := map[session.Viewer][]int64{}
				for i := range 40 {
					if i%8 == 0 {
						w.Drain()
						w.rebalance(u...)
					}
					id := w.Post(u[i%5], []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals, schema.Private}[i%4])
					for j, fan := range u {
						sees := fan == u[i%5] || i%4 != 3 && (i%5+j)%3 != 0 // every follow is mutual
						if sees {
							want[fan] = append(want[fan], id)
						}
					}
				}
				w.Drain()
				for _, fan := range u {
					require.Equal(w, feedtest.NewestFirst(want[fan]...), w.Walk(fan, 7, nil))
				}
			})
		})
	}
}

func TestDeliveryReceipt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		u := w.Users(12)
		for i, fan := range u[1:] {
			w.Follow(fan, u[0])
			if i < 4 {
				w.AwaitInbox(fan)
			}
		}
		w.Drain()
		id := w.Post(u[0], schema.Public)
		w.Drain()
		p, err := w.Feed.Post(w.Ctx, u[0], id)
		require.NoError(w, err)
		receipts, err := w.Feed.Deliveries(w.Ctx, u[0], []*ent.Post{p})
		require.NoError(w, err)
		r := receipts[0]
		require.Equal(w, [4]any{4, 0, 7, true}, [4]any{r.Pushed, r.Pulled, r.Skipped, r.Done})
		require.LessOrEqual(w, r.FirstLag, r.LastLag)
		receipts, err = w.Feed.Deliveries(w.Ctx, u[1], []*ent.Post{p})
		require.NoError(w, err)
		require.Nil(w, receipts[0], "the author's alone")
	})
}
