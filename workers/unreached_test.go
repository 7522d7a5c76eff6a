package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/job"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	feedjob "tideline/feed/job"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// silence stops the master of a cluster that has none of the keys, and returns its address. The
// other masters continue to serve their slots.
func silence(t *testing.T, rdb *redis.ClusterClient, but ...string) (addr string, goOn func()) {
	t.Helper()
	coverage := func(needed string) {
		require.NoError(t, rdb.ForEachMaster(context.WithoutCancel(t.Context()), func(ctx context.Context, c *redis.Client) error {
			return c.ConfigSet(ctx, "cluster-require-full-coverage", needed).Err()
		}))
	}
	coverage("no")
	pid := 0
	for i := 0; pid == 0; i++ {
		master, err := rdb.MasterForKey(t.Context(), strconv.Itoa(i))
		require.NoError(t, err)
		addr = master.Options().Addr
		if slices.ContainsFunc(but, func(key string) bool { return masterOf(t, rdb, key) == addr }) {
			continue
		}
		info, err := master.Info(t.Context(), "server").Result()
		require.NoError(t, err)
		_, after, _ := strings.Cut(info, "process_id:")
		pid, err = strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
		require.NoError(t, err)
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	stopped := true
	goOn = func() {
		if stopped {
			stopped = false
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
			require.Eventually(t, func() bool { // the others ask it again
				return rdb.ForEachMaster(context.WithoutCancel(t.Context()), func(ctx context.Context, c *redis.Client) error {
					info, err := c.ClusterInfo(ctx).Result()
					if err == nil && !strings.Contains(info, "cluster_state:ok") {
						err = errors.New("not ok")
					}
					return err
				}) == nil
			}, time.Minute, 50*time.Millisecond)
			coverage("yes")
		}
	}
	t.Cleanup(goOn)
	return addr, goOn
}

func masterOf(t *testing.T, rdb *redis.ClusterClient, key string) string {
	t.Helper()
	master, err := rdb.MasterForKey(t.Context(), key)
	require.NoError(t, err)
	return master.Options().Addr
}

// One master of a cluster does not answer. The followers on the other masters get the post and lose
// it. Those on the silent master do so when it answers again. The job is not done before.
func TestSilentMasterHoldsUpItsOwnFollowersOnly(t *testing.T) {
	t.Parallel()
	for _, followers := range []int{18, 42} {
		for _, silentAuthor := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d followers, author on the silent one %v", followers, silentAuthor), func(t *testing.T) {
				t.Parallel()
				s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.StartCluster(t).URL()})
				require.NoError(t, s.Migrate(t.Context()))
				rdb := s.Redis.(*redis.ClusterClient)
				a := newIdleAudience(t, s, followers, followers)
				outbox := timeline.Outbox(a.author.ID).String()
				but := []string{"q:{small}:s", "q:{large}:s"}
				if !silentAuthor {
					but = append(but, outbox)
				}
				silent, goOn := silence(t, rdb, but...)
				a.work(t, s.Redis)

				public, begun := schema.Public, time.Now()
				p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
				require.NoError(t, err)
				healthy := 0
				for _, user := range a.active {
					if masterOf(t, rdb, timeline.Inbox(user).String()) == silent || masterOf(t, rdb, fmt.Sprintf("tl:{a%d}", uint64(user)*0x9E3779B97F4A7C15>>60)) == silent {
						continue
					}
					healthy++
					require.Eventually(t, func() bool {
						ids, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
						return err == nil && covered.State == timeline.Ready && slices.Contains(ids, p.ID)
					}, time.Minute, 20*time.Millisecond)
				}
				t.Logf("%d of %d followers are healthy, and have the post after %v", healthy, followers, time.Since(begun))
				outstanding := s.DB.Job.Query().Where(job.Kind(feedjob.PostCreated))
				require.True(t, outstanding.Clone().ExistX(a.Ctx))
				goOn()
				require.Eventually(t, func() bool {
					waits, err := outstanding.Clone().Exist(a.Ctx)
					return err == nil && !waits
				}, 2*time.Minute, 20*time.Millisecond)
				t.Logf("the others after %v", time.Since(begun))
				a.requireReached(t, p.ID)
				require.False(t, s.DB.Job.Query().Where(job.Dead(true)).ExistX(a.Ctx))
				require.True(t, s.DB.Delivery.GetX(a.Ctx, p.ID).Done)
			})
		}
	}
}

// failing is a hook that makes writes to inboxes fail while it is on.
type failing struct {
	on    atomic.Bool
	spare atomic.Int64 // so many writes pass first
	here  func(cmds []redis.Cmder) bool
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.on.Load() && f.here(cmds) && f.spare.Add(-1) < 0 {
			return errors.New("it fails here")
		}
		return next(ctx, cmds)
	}
}

// A fan-out is given up in the middle. No timeline lacks the post, because all affected inboxes are
// read from SQL.
func TestGivenUpFanOutLeavesNoHole(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 42, 42)
		f := &failing{here: intoInboxes("zadd")}
		f.spare.Store(3)
		f.on.Store(true)
		s.Redis.AddHook(f)
		process(t, s, queue.Config{MaxAttempts: 2})
		public := schema.Public
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			n, err := s.DB.Job.Query().Where(job.Dead(true)).Count(a.Ctx)
			return err == nil && n == 1
		}, time.Minute, 5*time.Millisecond)
		a.Drain()
		for _, user := range append(a.active, a.author.ID) {
			_, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
			require.NoError(t, err)
			require.Equal(t, timeline.Missing, covered.State)
			_, err = a.Timelines.Visits.Visit(a.Ctx, user)
			require.NoError(t, err)
			require.NoError(t, a.Home.Reader.BuildInbox(a.Ctx, user))
		}
		_, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Outbox(a.author.ID), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Missing, covered.State)
		a.requireReached(t, p.ID)
	})
}

// A fan-out is given up before Redis knows the post. Readers who merge its author, and ask Redis
// which authors' posts reach the page, still find it.
func TestGivenUpFanOutOfAMergedAuthor(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var hits atomic.Int64
		w := feedtest.Idle(t, s, feedtest.Options{
			Policy: home.Policy{PullAbove: home.AlwaysPull, MergedListFor: time.Nanosecond, MergeAll: 1},
			Observe: func(hit bool) {
				if hit {
					hits.Add(1)
				}
			},
		})
		authors := w.Users(8) // so many that the page does not take all outboxes
		reader, star := w.User("reader"), authors[0]
		for _, author := range authors {
			require.NoError(t, s.DB.Follow.Create().SetFollowerID(reader.ID).SetFolloweeID(author.ID).Exec(w.Ctx))
			require.NoError(t, s.DB.User.UpdateOneID(author.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
			w.History(author, 1)
		}
		readInRedis := func() (page []int64) { // reads in SQL build missing feeds
			require.Eventually(t, func() bool {
				before := hits.Load()
				page = w.Timeline(reader, 1)
				return hits.Load() > before
			}, time.Minute, 5*time.Millisecond)
			return page
		}
		readInRedis() // Redis knows the latest posts from now on
		outbox, latest := timeline.Outbox(star.ID).String(), "tl:{n"
		f := &failing{here: func(cmds []redis.Cmder) bool {
			return slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
				return slices.ContainsFunc(c.Args(), func(arg any) bool {
					key := fmt.Sprint(arg)
					return strings.HasPrefix(key, outbox) || strings.HasPrefix(key, latest)
				})
			})
		}}
		f.on.Store(true)
		s.Redis.AddHook(f)
		process(t, s, queue.Config{MaxAttempts: 2})
		p := w.Post(star, schema.Public)
		require.Eventually(t, func() bool {
			n, err := s.DB.Job.Query().Where(job.Dead(true)).Count(w.Ctx)
			return err == nil && n == 1
		}, time.Minute, 5*time.Millisecond)
		f.on.Store(false)
		w.Drain()
		require.Equal(t, []int64{p}, readInRedis())
	})
}

// The job of a changed relation is given up. The affected inbox is read from SQL.
func TestGivenUpRelationLeavesNoHole(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{})
		author, follower := w.User("author"), w.User("follower")
		stop := w.Work()
		w.Befriend(author, follower)
		for _, v := range []session.Viewer{author, follower} {
			_, err := w.Timelines.Visits.Visit(w.Ctx, v.ID)
			require.NoError(t, err)
			require.NoError(t, w.Home.Reader.BuildInbox(w.Ctx, v.ID))
		}
		w.Post(author, schema.Mutuals)
		w.Drain()
		stop()
		inbox := timeline.Inbox(follower.ID).String() + ":z"
		f := &failing{here: func(cmds []redis.Cmder) bool {
			return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "evalsha" && slices.Contains(c.Args(), any(inbox)) })
		}}
		f.on.Store(true)
		s.Redis.AddHook(f)
		process(t, s, queue.Config{MaxAttempts: 2})
		_, err := w.Feed.Unfollow(w.Ctx, author, follower.ID)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			n, err := s.DB.Job.Query().Where(job.Dead(true)).Count(w.Ctx)
			return err == nil && n == 1
		}, time.Minute, 5*time.Millisecond)
		w.Drain()
		f.on.Store(false)
		_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(follower.ID), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Missing, covered.State)
	})
}

// A fan-out with an unreadable payload is given up, and so is the job that follows it. It is
// unknown which inboxes lack the post until both are discarded. Then all feeds are read from SQL.
func TestDiscardedJobsLeaveNoHole(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 12, 12)
		require.NoError(t, a.Home.Reader.BuildOutbox(a.Ctx, a.author.ID))
		known, err := a.Timelines.Latest.IDs(a.Ctx, []int64{a.author.ID})
		require.NoError(t, err)
		require.NoError(t, a.Timelines.Latest.Store(a.Ctx, known, map[int64]int64{a.author.ID: 0}))
		public := schema.Public
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
		require.NoError(t, err)
		_, err = s.DB.Job.Delete().Exec(a.Ctx)
		require.NoError(t, err)
		require.NoError(t, s.Redis.Del(a.Ctx, "q:{small}:s", "q:{small}:known").Err())
		require.NoError(t, s.DB.Job.Create().SetKind(feedjob.PostCreated).SetPool("small").SetPayload([]byte(`"poison"`)).SetDueAt(time.Now()).Exec(a.Ctx))
		process(t, s, queue.Config{})
		dead := func() []int64 {
			ids, err := a.Queue.DeadIDs(a.Ctx)
			require.NoError(t, err)
			return ids
		}
		a.Drain()
		require.Len(t, dead(), 2)
		ids, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(a.active[0]), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Ready, covered.State)
		require.NotContains(t, ids, p.ID, "there is a hole to be mended")

		enqueued, err := a.Queue.Discard(a.Ctx, feedjob.Replacement, dead()...)
		require.NoError(t, err)
		require.Equal(t, []string{feedjob.FeedsStale}, enqueued)
		a.Drain()
		require.Empty(t, dead())
		for _, user := range append(a.active, a.author.ID) {
			_, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
			require.NoError(t, err)
			require.Equal(t, timeline.Missing, covered.State)
			_, err = a.Timelines.Visits.Visit(a.Ctx, user)
			require.NoError(t, err)
			require.NoError(t, a.Home.Reader.BuildInbox(a.Ctx, user))
		}
		_, covered, err = a.Timelines.Feeds.Page(a.Ctx, timeline.Outbox(a.author.ID), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Missing, covered.State)
		known, err = a.Timelines.Latest.IDs(a.Ctx, []int64{a.author.ID})
		require.NoError(t, err)
		require.Equal(t, []int64{-1}, known.IDs, "readers who merge ask SQL for the author's latest post")
		a.requireReached(t, p.ID)
	})
}

// Replacement returns the job that makes up for a discarded one. A fan-out needs none, because the
// job that followed it when it was given up has made up for it. A job that nothing replaces cannot
// be discarded.
func TestReplacement(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		feedjob.PostCreated: "", feedjob.PostChanged: "", feedjob.RelationChanged: "", feedjob.Canary: "",
		feedjob.PostGivenUp: feedjob.FeedsStale, feedjob.RelationGivenUp: feedjob.FeedsStale, feedjob.FeedsStale: feedjob.FeedsStale,
	} {
		then, ok := feedjob.Replacement(kind)
		require.True(t, ok, kind)
		require.Equal(t, want, then, kind)
	}
	for _, kind := range []string{feedjob.AuthorReturns, feedjob.UserDeleted, feedjob.PostErased, "of a later version"} {
		_, ok := feedjob.Replacement(kind)
		require.False(t, ok, kind)
	}
}

// A job has waited for a silent master for so long that its next attempt is minutes away. It is
// retried as soon as the master answers, so that no timeline lacks posts for longer.
func TestJobsAreDueWhenAMasterReturns(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.StartCluster(t).URL()})
	require.NoError(t, s.Migrate(t.Context()))
	a := newIdleAudience(t, s, 18, 18)
	var looks, failed atomic.Int64
	a.masters = func(ctx context.Context) (map[string]error, error) {
		answers, err := s.CheckMasters(ctx)
		for _, err := range answers {
			if err != nil {
				failed.Add(1)
			}
		}
		looks.Add(1)
		return answers, err
	}
	a.work(t, s.Redis)
	require.Eventually(t, func() bool { return looks.Load() > 1 }, time.Minute, 5*time.Millisecond) // the first check wakes all jobs
	_, goOn := silence(t, s.Redis.(*redis.ClusterClient), "q:{small}:s", "q:{large}:s")
	require.NoError(t, s.DB.Job.Create().SetKind(feedjob.PostGivenUp).SetPool(string(queue.Small)).
		SetPayload(fmt.Appendf(nil, `{"post":1,"author":%d}`, a.author.ID)).SetAttempts(9).SetDueAt(time.Now()).Exec(a.Ctx))
	waits := s.DB.Job.Query().Where(job.Kind(feedjob.PostGivenUp))
	require.Eventually(t, func() bool {
		n, err := waits.Clone().Where(job.LastErrorNEQ(""), job.DueAtGT(time.Now().Add(2*time.Minute))).Count(a.Ctx)
		return err == nil && n == 1 && failed.Load() > 0
	}, time.Minute, 20*time.Millisecond)
	goOn()
	require.Eventually(t, func() bool { // without the wake-up it waits for more than three minutes
		left, err := waits.Clone().Exist(a.Ctx)
		return err == nil && !left
	}, time.Minute, 20*time.Millisecond)
	for _, user := range a.active {
		_, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Missing, covered.State)
	}
}
