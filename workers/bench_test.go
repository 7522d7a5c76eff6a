package workers_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

var (
	benchFollowers = flag.Int("followers", 100_000, "audience of BenchmarkFanOut")
	benchPart      = flag.Int("part", workers.DefaultPartSize, "followers of one part of a fan-out")
)

// BenchmarkFanOut measures a fan-out from the follower table in PostgreSQL to the last inbox in
// Redis, at several shares of active followers. The floor is raw pipelined ZADD into the same
// inboxes, in the same run.
func BenchmarkFanOut(b *testing.B) {
	for _, percent := range []int{0, 20, 100} {
		b.Run(fmt.Sprintf("followers=%d/active=%d%%", *benchFollowers, percent), func(b *testing.B) {
			benchmarkFanOut(b, *benchFollowers, percent)
		})
	}
}

// newRooms returns the fixture of a process in which no author is merged and no job may fail.
func newRooms(b *testing.B, s *storage.Stores) *feedtest.World {
	return feedtest.New(b, s, feedtest.Options{
		Queue:  queue.Config{Observe: func(r queue.Result) { assert.NoError(b, r.Err) }},
		Policy: home.Policy{PullAbove: home.NeverPull},
	})
}

// crowd is author 1 with followers from id 2 on, some of whom are active, and worker processes.
type crowd struct {
	*feedtest.World
	active   []int64
	fanouts  chan workers.FanOutReport
	underWay map[int64]progress // of fan-outs, by post
}

// progress is what the parts of a fan-out have reported so far.
type progress struct {
	workers.FanOutReport
	whole bool // the divided job, if any, has reported
	left  int  // parts that have not reported
}

func newCrowd(b *testing.B, s *storage.Stores, followers, percent int) *crowd {
	s.DB = ent.NewClient(ent.Driver(s.Driver)) // without the count of statements that tests have
	c := &crowd{fanouts: make(chan workers.FanOutReport, 64), underWay: map[int64]progress{}, active: make([]int64, followers*percent/100)}
	c.World = newRooms(b, s)
	c.Run(c.IDs.Run) // writing the followers may take longer than a lease
	c.fill(b, followers)
	c.read(b)
	c.work(b, c.World)
	return c
}

// work starts the workers of a process with this fixture.
func (c *crowd) work(b *testing.B, w *feedtest.World) {
	cfg := w.WorkersConfig()
	cfg.LagLimit, cfg.TrimEvery, cfg.PartSize = time.Hour, time.Hour, *benchPart
	cfg.Observe = func(f workers.FanOutReport) { c.fanouts <- f }
	ws, err := workers.New(cfg)
	require.NoError(b, err)
	w.Run(ws.Run)
}

// fill writes the followers without the API and without indexes and foreign keys. Otherwise a
// million of them would take minutes.
func (c *crowd) fill(b *testing.B, followers int) {
	tx, err := c.Stores.SQL.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	var indexes []string
	rows, err := tx.QueryContext(b.Context(), `SELECT indexdef FROM pg_indexes WHERE tablename = 'follows' AND indexname LIKE 'follow\_%'`)
	require.NoError(b, err)
	for rows.Next() {
		var index string
		require.NoError(b, rows.Scan(&index))
		indexes = append(indexes, index)
	}
	require.NoError(b, rows.Err())
	require.Len(b, indexes, 3)
	for _, statement := range slices.Concat([]string{
		`SET LOCAL session_replication_role = replica`,
		`DROP INDEX follow_followee_id_id_follower_id, follow_follower_id_followee_id, follow_follower_id_id_followee_id`,
		fmt.Sprintf(`INSERT INTO users (id, handle, password_hash, fan_out_mode_since, created_at) SELECT g, 'u' || g, '-', 0, now() FROM generate_series(1, %d) g`, followers+1),
		fmt.Sprintf(`INSERT INTO follows (follower_id, followee_id, created_at) SELECT g + 1, 1, now() FROM generate_series(1, %d) g ORDER BY random()`, followers),
		fmt.Sprintf(`UPDATE users SET follower_count = %d WHERE id = 1`, followers),
	}, indexes) {
		_, err := tx.ExecContext(b.Context(), statement)
		require.NoError(b, err, statement)
	}
	require.NoError(b, tx.Commit())
	_, err = c.Stores.SQL.ExecContext(b.Context(), `VACUUM ANALYZE follows`)
	require.NoError(b, err)
}

// read makes some users active, one after the other over the last hours. It writes the same data as
// timeline.Visits.Visit, and the sets that a read begins.
func (c *crowd) read(b *testing.B) {
	for i := range c.active {
		c.active[i] = int64(i + 2)
	}
	now, left := time.Now(), 73*time.Hour
	for chunk := range slices.Chunk(c.active, 10_000) {
		_, err := c.Stores.Redis.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for _, user := range chunk {
				left -= time.Hour / time.Duration(len(c.active))
				p.ZAdd(b.Context(), fmt.Sprintf("tl:{a%d}", uint64(user)*0x9E3779B97F4A7C15>>60),
					redis.Z{Score: float64(now.Add(left).UnixMilli()), Member: user})
				set := timeline.Inbox(user).String() + ":z"
				p.ZAdd(b.Context(), set, redis.Z{Member: 0}) // the end mark
				p.Expire(b.Context(), set, 74*time.Hour)
			}
			return nil
		})
		require.NoError(b, err)
	}
	tl, err := timeline.New(c.Stores.Redis, timeline.Config{})
	require.NoError(b, err)
	active, err := tl.Active.Of(b.Context(), c.active)
	require.NoError(b, err)
	require.Len(b, active, len(c.active))
}

// fanout waits until the next fan-out and all its parts are done, and returns their combined
// report.
func (c *crowd) fanout(b *testing.B) workers.FanOutReport {
	for {
		select {
		case f := <-c.fanouts:
			r := c.underWay[f.Post]
			r.Post, r.Pushed, r.LastLag = f.Post, r.Pushed+f.Pushed, max(r.LastLag, f.LastLag)
			r.whole, r.left = r.whole || f.Part == 0, r.left+f.Parts-min(f.Part, 1)
			if c.underWay[f.Post] = r; r.whole && r.left == 0 {
				delete(c.underWay, f.Post)
				return r.FanOutReport
			}
		case <-time.After(time.Minute):
			b.Fatal("no fan-out gets done")
		}
	}
}

func benchmarkFanOut(b *testing.B, followers, percent int) {
	ctx := b.Context()
	c := newCrowd(b, storagetest.Real(b), followers, percent)
	var ours, floor time.Duration
	for b.Loop() {
		start := time.Now()
		p, err := c.Feed.CreatePost(ctx, session.Viewer{ID: 1}, feed.Draft{Text: "hello"})
		require.NoError(b, err)
		require.Equal(b, len(c.active), c.fanout(b).Pushed)
		ours += time.Since(start)

		start = time.Now()
		c.add(b, p.ID+1, 1)
		floor += time.Since(start)
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/post")
	b.ReportMetric(float64(followers)*float64(b.N)/ours.Seconds(), "followers/s")
	if percent > 0 {
		b.ReportMetric(float64(len(c.active))*float64(b.N)/ours.Seconds(), "pushed/s")
		b.ReportMetric(float64(len(c.active))*float64(b.N)/floor.Seconds(), "floor-pushed/s")
		b.ReportMetric(floor.Seconds()/ours.Seconds(), "of-floor")
	}
}

// add is the floor of a fan-out: bare ZADDs of an id into the same inboxes, with so many pipelines
// at a time.
func (c *crowd) add(b *testing.B, id int64, pipelines int) {
	var adding errgroup.Group
	adding.SetLimit(pipelines)
	for chunk := range slices.Chunk(c.active, 1000) {
		adding.Go(func() error {
			_, err := c.Stores.Redis.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
				for _, user := range chunk {
					pipe.ZAdd(b.Context(), timeline.Inbox(user).String()+":z", redis.Z{Score: float64(-id), Member: id})
				}
				return nil
			})
			return err
		})
	}
	require.NoError(b, adding.Wait())
}

// BenchmarkMasters measures the processor time of Redis per delivery on clusters of one, two and
// four masters. All followers are active. More masters share the work and should hardly add to it.
func BenchmarkMasters(b *testing.B) {
	for _, masters := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("followers=%d/masters=%d", *benchFollowers, masters), func(b *testing.B) {
			cluster := storagetest.StartClusterOf(b, masters)
			c := newCrowd(b, storagetest.Open(b, storage.Config{
				DatabaseURL: storagetest.PostgresURL(b), RedisURL: cluster.URL(),
			}), *benchFollowers, 100)
			spent, start := processorTime(), time.Now()
			for b.Loop() {
				_, err := c.Feed.CreatePost(b.Context(), session.Viewer{ID: 1}, feed.Draft{Text: "hello"})
				require.NoError(b, err)
				require.Equal(b, len(c.active), c.fanout(b).Pushed)
			}
			b.ReportMetric(float64(b.N*len(c.active))/time.Since(start).Seconds(), "pushed/s")
			reportProcessorTime(b, spent, b.N*len(c.active))
		})
	}
}

// BenchmarkSlowMasters measures how many masters one fan-out keeps busy, with one worker process
// and with four. Each master executes 20,000 commands a second and uses no processor while it is
// slow, because a machine with two processors cannot show this otherwise.
func BenchmarkSlowMasters(b *testing.B) {
	const each = 50 * time.Microsecond
	for _, of := range [][2]int{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {8, 4}} {
		masters, processes := of[0], of[1]
		b.Run(fmt.Sprintf("followers=%d/masters=%d/processes=%d", *benchFollowers, masters, processes), func(b *testing.B) {
			cfg := storage.Config{DatabaseURL: storagetest.PostgresURL(b), RedisURL: storagetest.StartClusterOf(b, masters).URL()}
			s := storagetest.Open(b, cfg)
			c := newCrowd(b, s, *benchFollowers, 100)
			slow := slowMasters{each: each, busy: map[string]*sync.Mutex{}}
			slow.slow(b, s)
			for range processes - 1 {
				s := storagetest.Open(b, cfg)
				c.work(b, newRooms(b, s))
				slow.slow(b, s)
			}
			start, post := time.Now(), int64(0)
			for b.Loop() {
				p, err := c.Feed.CreatePost(b.Context(), session.Viewer{ID: 1}, feed.Draft{Text: "hello"})
				require.NoError(b, err)
				require.Equal(b, len(c.active), c.fanout(b).Pushed)
				post = p.ID
			}
			ours, start := time.Since(start), time.Now()
			c.add(b, post+1, 4*masters)
			floor := time.Since(start)
			rate := float64(b.N*len(c.active)) / ours.Seconds()
			b.ReportMetric(rate, "pushed/s")
			b.ReportMetric(rate*each.Seconds()/float64(masters), "of-masters")
			b.ReportMetric(float64(b.N)*floor.Seconds()/ours.Seconds(), "of-floor")
		})
	}
}

// slowMasters runs one pipeline at a time on each master, for as long as its commands take.
type slowMasters struct {
	each time.Duration
	mu   sync.Mutex
	busy map[string]*sync.Mutex // by the address of the master
}

// slow makes the masters slow for a process.
func (m *slowMasters) slow(b *testing.B, s *storage.Stores) {
	require.NoError(b, s.Redis.(*redis.ClusterClient).ForEachMaster(b.Context(), func(_ context.Context, master *redis.Client) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		busy := m.busy[master.Options().Addr]
		if busy == nil {
			busy = &sync.Mutex{}
			m.busy[master.Options().Addr] = busy
		}
		master.AddHook(slowMaster{m.each, busy})
		return nil
	}))
}

type slowMaster struct {
	each time.Duration
	busy *sync.Mutex
}

func (s slowMaster) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s slowMaster) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s slowMaster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.busy.Lock()
		time.Sleep(s.each * time.Duration(len(cmds)))
		s.busy.Unlock()
		return next(ctx, cmds)
	}
}

// BenchmarkSmallBesideLarge measures how long a post takes to ten active followers, from the call
// to the last inbox: on an idle system, and during a fan-out to all other users.
func BenchmarkSmallBesideLarge(b *testing.B) {
	ctx := b.Context()
	c := newCrowd(b, storagetest.Real(b), *benchFollowers, 100)
	for _, statement := range []string{
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT g + 2, 2, now() FROM generate_series(1, 10) g`,
		`UPDATE users SET follower_count = 10 WHERE id = 2`,
	} {
		_, err := c.Stores.SQL.ExecContext(ctx, statement)
		require.NoError(b, err)
	}
	small := func() (lag time.Duration, beside bool) {
		p, err := c.Feed.CreatePost(ctx, session.Viewer{ID: 2}, feed.Draft{Text: "to a few"})
		require.NoError(b, err)
		f := c.fanout(b)
		if f.Post != p.ID { // the large one was faster
			f = c.fanout(b)
			return f.LastLag, false
		}
		return f.LastLag, true
	}
	var idle, beside []time.Duration
	for b.Loop() {
		lag, _ := small()
		idle = append(idle, lag)
		_, err := c.Feed.CreatePost(ctx, session.Viewer{ID: 1}, feed.Draft{Text: "to very many"})
		require.NoError(b, err)
		for {
			lag, still := small()
			if !still {
				break
			}
			beside = append(beside, lag)
		}
	}
	for name, lags := range map[string][]time.Duration{"idle": idle, "beside": beside} {
		if slices.Sort(lags); len(lags) > 0 {
			b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, name+"-p50-ms")
			b.ReportMetric(float64(lags[len(lags)*9/10].Microseconds())/1000, name+"-p90-ms")
		}
	}
}
