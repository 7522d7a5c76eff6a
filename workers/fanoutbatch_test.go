package workers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/job"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// pushed returns the posts that the pipeline pushes into inboxes.
func pushed(cmds []redis.Cmder) (posts []string) {
	for _, cmd := range cmds {
		if args := cmd.Args(); cmd.Name() == "zadd" && strings.HasPrefix(args[1].(string), "tl:{i") {
			posts = append(posts, args[3].(string))
		}
	}
	slices.Sort(posts)
	return slices.Compact(posts)
}

// common calls a function before the first pipeline that pushes several posts.
type common struct {
	seen   atomic.Bool
	before func(posts []string) error
}

func (c *common) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *common) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *common) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if posts := pushed(cmds); len(posts) > 1 && c.seen.CompareAndSwap(false, true) {
			if err := c.before(posts); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// readerOfMany is an active user who is the only follower of several authors.
type readerOfMany struct {
	*feedtest.World
	authors []session.Viewer
	reader  session.Viewer
	posts   []int64
}

func newReaderOfMany(t *testing.T, w *feedtest.World) *readerOfMany {
	c := &readerOfMany{World: w, authors: w.Users(8), reader: w.User("reader")}
	for _, author := range c.authors {
		require.NoError(t, w.Stores.DB.Follow.Create().SetFollowerID(c.reader.ID).SetFolloweeID(author.ID).Exec(c.Ctx))
		require.NoError(t, w.Stores.DB.User.UpdateOneID(author.ID).SetFollowerCount(1).Exec(c.Ctx))
	}
	_, err := w.Timelines.Visits.Visit(c.Ctx, c.reader.ID)
	require.NoError(t, err)
	require.NoError(t, w.Home.Reader.BuildInbox(c.Ctx, c.reader.ID))
	return c
}

// write makes each author write a post.
func (c *readerOfMany) write() {
	for _, author := range c.authors {
		p, err := c.Feed.CreatePost(c.Ctx, author, feed.Draft{Text: "hello"})
		require.NoError(c, err)
		c.posts = append(c.posts, p.ID)
	}
}

// writeUntil writes posts until workers have shared a request.
func (c *readerOfMany) writeUntil(seen *atomic.Bool) {
	require.Eventually(c, func() bool {
		if left, err := c.Stores.DB.Job.Query().Count(c.Ctx); err == nil && left == 0 && !seen.Load() {
			c.write()
		}
		return seen.Load()
	}, time.Minute, time.Millisecond)
}

// holds requires that the reader's inbox has exactly these posts.
func (c *readerOfMany) holds(posts []int64) {
	c.Helper()
	ids, covered, err := c.Timelines.Feeds.Page(c.Ctx, timeline.Inbox(c.reader.ID), timeline.Range{Limit: len(c.posts) + 1})
	require.NoError(c, err)
	require.Equal(c, timeline.Ready, covered.State)
	require.ElementsMatch(c, posts, ids)
}

// Small fan-outs share one pipeline. It fails for all, or one of them has lost its claim. All posts
// arrive, and no fan-out that keeps its claim is done twice.
func TestFanOutsInABatch(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"the pipeline fails": false, "a claim is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storagetest.Real(t)
			var attempts sync.Map // by job
			var again atomic.Int64
			w := feedtest.New(t, s, feedtest.Options{Queue: queue.Config{
				SweepEvery: 50 * time.Millisecond, ClaimIdle: 5 * time.Second, // a busy machine loses no other claim
				Observe: func(r queue.Result) {
					if _, before := attempts.Swap(r.Job, true); before {
						again.Add(1)
					}
				},
			}})
			first := &common{before: func(posts []string) error {
				if !lost {
					return errors.New("the connection is closed")
				}
				_, err := s.SQL.ExecContext(context.Background(), `UPDATE jobs SET claim = 7 WHERE payload ->> 'post' = $1`, posts[0])
				return err
			}}
			s.Redis.AddHook(first)
			c := newReaderOfMany(t, w)
			c.write() // all jobs are enqueued before the workers begin
			stop := w.Work()
			c.writeUntil(&first.seen)
			w.Drain()
			stop() // a job's row is gone before Observe is called
			c.holds(c.posts)
			if lost {
				require.Equal(t, int64(1), again.Load())
			} else {
				require.Greater(t, again.Load(), int64(1))
			}
		})
	}
}

// A pipeline of several fan-outs hangs. Other fan-outs of the same process continue.
func TestHungCompanyHoldsUpItsOwnOnly(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{Queue: queue.Config{SweepEvery: 50 * time.Millisecond}})
		hung, goOn := make(chan struct{}), make(chan struct{})
		first := &common{before: func([]string) error { close(hung); <-goOn; return nil }}
		s.Redis.AddHook(first)
		c := newReaderOfMany(t, w)
		c.write()
		w.Work()
		c.writeUntil(&first.seen)
		<-hung
		held, err := s.DB.Job.Query().Order(job.ByID(sql.OrderDesc())).First(w.Ctx)
		require.NoError(t, err)
		for range 3 {
			c.write()
			require.Eventually(t, func() bool {
				left, err := s.DB.Job.Query().Where(job.IDGT(held.ID)).Count(w.Ctx)
				return err == nil && left == 0
			}, time.Minute, time.Millisecond)
		}
		close(goOn)
		w.Drain()
		c.holds(c.posts)
	})
}

// A process is suspended before a pipeline of several fan-outs. Another process takes all of them
// over, and the posts are hidden. No job is left when the process continues and writes what it has
// read.
func TestLostClaimsOfCompanyLeaveInboxesRight(t *testing.T) {
	t.Parallel()
	s := storagetest.Real(t)
	w := feedtest.New(t, s, feedtest.Options{})
	c := newReaderOfMany(t, w)
	var held []string
	c.write()
	stopped := newStopped(t, w, func(cmds []redis.Cmder) bool {
		posts := pushed(cmds)
		if len(posts) < 2 {
			return false
		}
		held = posts
		return true
	}, nil)
	require.Eventually(t, func() bool {
		left, err := s.DB.Job.Query().Count(c.Ctx)
		if err == nil && left == 0 && !stopped.stopped.Load() {
			c.write()
		}
		return stopped.stopped.Load()
	}, time.Minute, time.Millisecond)
	stopped.wait(t)
	process(t, s, queue.Config{}) // the other
	w.Drain()
	c.holds(c.posts)
	for i, post := range c.posts {
		_, err := c.Feed.SetVisibility(c.Ctx, c.authors[i%len(c.authors)], post, schema.Private)
		require.NoError(t, err)
	}
	w.Drain()
	c.holds(nil)
	close(stopped.goOn)
	for range held {
		for r := range stopped.results {
			if r.Outcome == queue.Lost {
				break
			}
		}
	}
	w.Drain()
	c.holds(nil)
}
