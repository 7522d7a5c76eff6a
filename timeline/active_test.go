package timeline_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestDeliverReachesTheActiveOnly(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx := t.Context()
		var users, want []int64
		var active []bool
		for user := int64(1); user <= 200; user++ {
			users = append(users, user)
			active = append(active, user%3 == 0)
			if user%3 == 0 {
				want = append(want, user)
				require.NoError(t, s.Visits.Touch(ctx, user))
				build(t, s, timeline.Inbox(user), nil, 0)
			}
		}
		got, err := s.Active.Check(ctx, users)
		require.NoError(t, err)
		require.Equal(t, active, got)

		pushed, err := s.Inboxes.Deliver(ctx, 77, users)
		require.NoError(t, err)
		require.Equal(t, want, pushed)
		pushed, err = s.Inboxes.Deliver(ctx, 77, users)
		require.NoError(t, err)
		require.Equal(t, want, pushed, "delivering again changes nothing")
		for _, user := range want {
			require.Equal(t, []int64{77}, page(t, s, timeline.Inbox(user), timeline.Range{Limit: 9}))
		}
		exist, err := rdb.Exists(ctx, "tl:{i1}:z").Result()
		require.NoError(t, err)
		require.Zero(t, exist, "an inactive user has no inbox")

		require.NoError(t, s.Inboxes.Withdraw(ctx, []int64{77, 78}, users))
		require.Empty(t, page(t, s, timeline.Inbox(3), timeline.Range{Limit: 9}))

		c.advance(72*time.Hour - time.Second)
		pushed, err = s.Inboxes.Deliver(ctx, 79, users)
		require.NoError(t, err)
		require.Equal(t, want, pushed)
		c.advance(time.Hour + 2*time.Second)
		pushed, err = s.Inboxes.Deliver(ctx, 80, users)
		require.NoError(t, err)
		require.Empty(t, pushed)

		pushed, err = s.Inboxes.Deliver(ctx, 80, nil)
		require.NoError(t, err)
		require.Empty(t, pushed)
	})
}

func TestSampleFindsTheActive(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		for user := range int64(6) {
			got, err := s.Active.Sample(ctx, 4)
			require.NoError(t, err)
			require.Len(t, got, int(min(user, 4)))
			seen := make(map[int64]bool)
			for _, id := range got {
				require.True(t, id >= 1 && id <= user)
				seen[id] = true
			}
			require.Len(t, seen, len(got), "nobody twice")
			require.NoError(t, s.Visits.Touch(ctx, user+1))
		}
	})
}

func TestVisitDropsAnInboxThatMayHaveAHole(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx, k := t.Context(), timeline.Inbox(1)
		skip := map[string]func(){
			"time has passed":             func() { c.advance(74 * time.Hour) },
			"redis lost the active users": func() { require.NoError(t, rdb.Del(ctx, activeKey(1)).Err()) },
			"swept after time has passed": func() {
				c.advance(74 * time.Hour)
				_, err := s.Sweeper.Sweep(ctx)
				require.NoError(t, err)
			},
		}
		for why, happens := range skip {
			require.NoError(t, s.Visits.Touch(ctx, 1))
			build(t, s, k, []int64{1}, 0)
			require.NoError(t, s.Visits.Touch(ctx, 1))
			require.Equal(t, timeline.Ready, coverage(t, s, k).State)

			happens()
			pushed, err := s.Inboxes.Deliver(ctx, 2, []int64{1})
			require.NoError(t, err)
			require.Empty(t, pushed, why)
			require.NoError(t, s.Visits.Touch(ctx, 1))
			require.Equal(t, timeline.Missing, coverage(t, s, k).State, why)
		}
	})
}

func TestCoverageEndsBeforeActivityAndActivityBeforeTheSet(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx := t.Context()
		life := func(key string) time.Duration {
			ttl, err := rdb.PTTL(ctx, key).Result()
			require.NoError(t, err)
			return ttl
		}
		check := func(meta, set string, keeps time.Duration) {
			t.Helper()
			require.InDelta(t, keeps, life(meta), float64(time.Minute))
			require.InDelta(t, keeps+2*time.Hour, life(set), float64(time.Minute))
		}
		require.NoError(t, s.Visits.Touch(ctx, 1))
		b, _, err := s.Feeds.Begin(ctx, timeline.Inbox(1))
		require.NoError(t, err)
		check("tl:{i1}:m", "tl:{i1}:z", 72*time.Hour)
		_, err = s.Feeds.Finish(ctx, &b, nil, 0)
		require.NoError(t, err)
		check("tl:{i1}:m", "tl:{i1}:z", 72*time.Hour)

		shorten := func(keys ...string) {
			for _, key := range keys {
				require.NoError(t, rdb.PExpire(ctx, key, time.Hour).Err())
			}
		}
		shorten("tl:{i1}:m", "tl:{i1}:z")
		require.NoError(t, s.Feeds.Add(ctx, timeline.Inbox(1), 1))
		require.LessOrEqual(t, life("tl:{i1}:m"), time.Hour, "only reading keeps an inbox")
		require.NoError(t, s.Visits.Touch(ctx, 1))
		check("tl:{i1}:m", "tl:{i1}:z", 72*time.Hour)

		build(t, s, timeline.Outbox(1), nil, 0)
		shorten("tl:{o1}:m", "tl:{o1}:z")
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 1))
		check("tl:{o1}:m", "tl:{o1}:z", 7*24*time.Hour)

		c.advance(72*time.Hour + 59*time.Minute)
		active, err := s.Active.Check(ctx, []int64{1})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, active)
	})
}

func TestFences(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx := t.Context()
		fenced := func() []int64 {
			viewers, _, err := s.Fences.Fenced(ctx, 9, 1, time.Time{})
			require.NoError(t, err)
			return viewers
		}
		require.Empty(t, fenced())
		require.NoError(t, s.Fences.Fence(ctx, 9, 1))
		c.advance(30 * time.Minute)
		require.NoError(t, s.Fences.Fence(ctx, 9, 2))
		require.NoError(t, s.Fences.Fence(ctx, 8, 3))
		require.Equal(t, []int64{1, 2}, fenced())
		c.advance(31 * time.Minute)
		require.Equal(t, []int64{2}, fenced())
		require.NoError(t, s.Fences.Fence(ctx, 9, 4))
		require.Equal(t, []int64{2, 4}, fenced())
		kept, err := rdb.ZCard(ctx, "tl:{o9}:f").Result()
		require.NoError(t, err)
		require.EqualValues(t, 2, kept)
		ttl, err := rdb.TTL(ctx, "tl:{o9}:f").Result()
		require.NoError(t, err)
		require.Positive(t, ttl)

		whole := func(job int64) bool {
			_, whole, err := s.Fences.Fenced(ctx, 9, job, time.Time{})
			require.NoError(t, err)
			return whole
		}
		require.False(t, whole(1), "nobody watches")
		require.NoError(t, s.Fences.Watch(ctx, 9, 1))
		require.Equal(t, []int64{2, 4}, fenced())
		require.True(t, whole(1))
		require.False(t, whole(2))
		require.NoError(t, rdb.Del(ctx, "tl:{o9}:f").Err())
		require.NoError(t, s.Fences.Fence(ctx, 9, 5))
		require.False(t, whole(1), "fences were lost")
	})
}

func TestSweepGoesRoundAllActiveUsers(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, c := newStore(t, rdb)
		ctx := t.Context()
		const users = 1500
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for user := int64(1); user <= users; user++ {
				p.ZAdd(ctx, activeKey(user), redis.Z{
					Score:  float64(c.Now().Add(time.Hour + time.Duration(user)*time.Millisecond).UnixMilli()),
					Member: user,
				})
			}
			return nil
		})
		require.NoError(t, err)
		over := []int64{2, 700, 1500}
		for _, user := range over {
			build(t, s, timeline.Inbox(user), down(250, 1), 0)
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for id := int64(251); id <= 400; id++ {
					p.ZAdd(ctx, inboxSet(user), redis.Z{Score: float64(-id), Member: id})
				}
				return nil
			})
			require.NoError(t, err)
		}
		// A push between a wipe and the next Begin.
		require.NoError(t, rdb.ZAdd(ctx, "tl:{i1000}:z", redis.Z{Score: -1, Member: 1}).Err())

		first, err := s.Sweeper.Sweep(ctx)
		require.NoError(t, err)
		require.Equal(t, 1000, first.Visited)
		require.False(t, first.Complete)
		second, err := s.Sweeper.Sweep(ctx)
		require.NoError(t, err)
		require.Equal(t, 500, second.Visited)
		require.True(t, second.Complete)
		require.Zero(t, first.Expired+second.Expired)
		require.Equal(t, 3, first.Trimmed+second.Trimmed)
		require.Equal(t, 300, first.Cut+second.Cut)
		require.Equal(t, 1, first.Lost+second.Lost)
		for _, user := range over {
			require.Equal(t, down(400, 101), page(t, s, timeline.Inbox(user), timeline.Range{Limit: 1000}))
			require.EqualValues(t, 101, coverage(t, s, timeline.Inbox(user)).Floor)
		}

		c.advance(time.Hour + 600*time.Millisecond)
		third, err := s.Sweeper.Sweep(ctx)
		require.NoError(t, err)
		require.Equal(t, timeline.SweepResult{Expired: 600, Visited: 900, Complete: true}, third)
	})
}
