package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// outage is a hook that makes Redis unreachable for a context with the key outage{}.
type outage struct{}

func (outage) DialHook(next redis.DialHook) redis.DialHook { return next }
func (outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Value(outage{}) == nil {
			return next(ctx, cmd)
		}
		cmd.SetErr(errors.New("redis is away"))
		return cmd.Err()
	}
}

func (outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(outage{}) == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errors.New("redis is away"))
		}
		return cmds[0].Err()
	}
}

func (w *world) page(ctx context.Context, v session.Viewer, p paging.Page, order home.Order) *paging.Connection[ent.Post] {
	w.Helper()
	c, err := w.Home.Timeline(ctx, v, p, order)
	require.NoError(w, err)
	require.NotEmpty(w, c.Position)
	return c
}

// A client that reads an empty timeline and subscribes after its position receives the posts of the
// time in between once.
func TestResumeAfterEmptyPage(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]home.Policy{"pushed": {}, "pulled": {PullAbove: home.AlwaysPull}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				now := time.Now() // the clock stands still, so no builder counts as dead
				s.Redis.AddHook(outage{})
				w := &world{feedtest.Idle(t, s, feedtest.Options{
					Policy: policy, Timelines: timeline.Config{Now: func() time.Time { return now }},
				})}
				w.Work()
				bob := w.User("bob")
				for inbox, test := range map[string]struct {
					prepare func(session.Viewer)
					ctx     context.Context
					order   home.Order
					told    bool // the client is told to read again
				}{
					"ready":  {prepare: w.AwaitInbox},
					"ranked": {prepare: w.AwaitInbox, order: home.Ranked},
					"building": {prepare: func(v session.Viewer) {
						_, err := w.Timelines.Visits.Visit(w.Ctx, v.ID)
						require.NoError(w, err)
						_, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Inbox(v.ID))
						require.True(w, err == nil && begun)
					}},
					"missing": {},
					"away":    {ctx: context.WithValue(w.Ctx, outage{}, true), told: true},
				} {
					t.Logf("inbox: %s", inbox)
					ann := w.User(inbox)
					w.Follow(ann, bob)
					w.Drain()
					hidden := w.History(bob, 1)
					_, err := w.Stores.DB.Post.UpdateOneID(hidden[0]).SetVisibility(schema.Private).Save(w.Ctx)
					require.NoError(w, err)
					require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Outbox(bob.ID)))
					if test.prepare != nil {
						test.prepare(ann)
					}
					if test.ctx == nil {
						test.ctx = w.Ctx
					}
					order := home.Latest
					if test.order != "" {
						order = test.order
					}
					var before []int64
					page := w.page(test.ctx, ann, paging.Page{}, order)
					require.Empty(w, page.Edges)
					require.Nil(w, page.PageInfo().StartCursor)
					for range 3 {
						before = append(before, w.Post(bob, schema.Public))
					}
					w.Drain()
					l := w.listen(ann, &page.Position)
					if test.told {
						require.IsType(w, &stream.Invalidated{}, l.next())
					}
					for _, id := range before {
						require.Equal(w, id, l.added())
					}
					l.expectNothingBefore(bob)
					l.close()
					_, err = w.Stores.DB.Post.Update().SetVisibility(schema.Private).Save(w.Ctx)
					require.NoError(w, err)
				}
			})
		})
	}
}

// After the position of a page, a stream sends the posts above the page and the posts that arrived
// since, and no post of the page.
func TestResumeAfterPositionOfAPage(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		var posts []int64
		for range 6 {
			posts = append(posts, w.Post(bob, schema.Public))
		}
		w.Drain()
		two := 2
		resumes := func(c *paging.Connection[ent.Post], told ...int64) {
			w.Helper()
			l := w.listen(ann, &c.Position)
			for _, id := range told {
				require.Equal(w, id, l.added())
			}
			l.expectQuiet("the client has the rest")
			l.close()
			_, err := w.Stores.DB.Post.Delete().Where(post.AuthorID(ann.ID)).Exec(w.Ctx)
			require.NoError(w, err)
		}
		top := w.page(w.Ctx, ann, paging.Page{First: &two}, home.Latest)
		require.Equal(w, top.Edges[0].Cursor, top.Position)
		resumes(top)
		resumes(w.page(w.Ctx, ann, paging.Page{First: &two}, home.Ranked))
		second := w.page(w.Ctx, ann, paging.Page{First: &two, After: &top.Edges[1].Cursor}, home.Latest)
		resumes(second, posts[4:]...)
		ranked := w.page(w.Ctx, ann, paging.Page{First: &two}, home.Ranked)

		// While the client pages upwards, a post arrives below the posts that it has read.
		overtaken := w.PostAged(bob, 30*time.Second)
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, overtaken, []int64{ann.ID})
		require.NoError(w, err)
		above := w.page(w.Ctx, ann, paging.Page{Last: &two, Before: &second.Edges[1].Cursor}, home.Latest)
		require.Equal(w, []int64{posts[4], posts[3]}, feedtest.PostIDs(above))
		resumes(above, overtaken, posts[5])
		resumes(ranked, overtaken)
		next := w.page(w.Ctx, ann, paging.Page{First: &two, After: &ranked.Edges[1].Cursor}, home.Ranked)
		resumes(next, overtaken)

		// The position of an empty page says the same as the cursor that the page was read with.
		none := w.page(w.Ctx, ann, paging.Page{Last: &two, Before: &top.Edges[0].Cursor}, home.Latest)
		require.Empty(w, none.Edges)
		resumes(none, overtaken)
		end := w.page(w.Ctx, ann, paging.Page{Last: &two}, home.Latest)
		none = w.page(w.Ctx, ann, paging.Page{First: &two, After: &end.Edges[1].Cursor}, home.Latest)
		require.Empty(w, none.Edges)
		resumes(none, posts...)
	})
}

// The process is stopped while it reads a page. A post that arrives meanwhile, below the newest post
// of the page, is sent after the position.
func TestPageOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var ahead, stops atomic.Int64
		w := newWorld(t, s, feedtest.Options{
			Now:     func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			Observe: func(bool) { ahead.Add(stops.Swap(0)) },
		})
		ann, bob := w.followed()
		overtaken, top := w.PostAged(bob, 30*time.Second), w.History(bob, 1)[0]
		w.AwaitInbox(ann)
		require.NoError(w, w.Timelines.Inboxes.Erase(w.Ctx, []int64{overtaken}, []int64{ann.ID}))
		stops.Store(int64(3 * time.Minute))
		page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
		require.Equal(w, []int64{top}, feedtest.PostIDs(page))
		require.Zero(w, stops.Load(), "the process was stopped while it read")
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, overtaken, []int64{ann.ID})
		require.NoError(w, err)
		require.Equal(w, overtaken, w.listen(ann, &page.Position).added())
	})
}

// An empty page is read upwards from the end of the timeline. A post that arrives right after the read
// of the inbox is sent after the position.
func TestEmptyPageLacksWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var meanwhile atomic.Pointer[func()]
		w := clocked{newWorld(t, s, feedtest.Options{Observe: func(bool) {
			if do := meanwhile.Swap(nil); do != nil {
				(*do)()
			}
		}}), new(atomic.Int64)}
		ann, bob := w.followed()
		w.AwaitInbox(ann)
		var id int64
		arrive := func() { id = w.arrives(bob, ann) }
		meanwhile.Store(&arrive)
		two := 2
		page := w.page(w.Ctx, ann, paging.Page{Last: &two}, home.Latest)
		require.NotZero(w, id)
		require.Empty(w, page.Edges)
		require.Equal(w, id, w.listen(ann, &page.Position).added())
	})
}

// A first page may be empty although the timeline goes on below: after a thousand replies in a row that the viewer is not
// shown. Whoever subscribes with its position gets what comes then, and no post that is further down.
func TestPositionOfAPageThatEndedEarly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.followed()
		root := w.Post(w.User("eve"), schema.Public)
		older := make([]*ent.PostCreate, 1100) // three plain posts, then replies
		for i := range older {
			id := ids.At(time.Now().Add(-time.Hour)) + int64(i)*ids.PerStep
			older[i] = w.Stores.DB.Post.Create().SetID(id).SetAuthorID(bob.ID).SetText("then").SetVisibility(schema.Public)
			if i >= 3 {
				older[i].SetParentID(root).SetRootID(root)
			}
		}
		for chunk := range slices.Chunk(older, 500) {
			require.NoError(w, w.Stores.DB.Post.CreateBulk(chunk...).Exec(w.Ctx))
		}
		w.Posted(bob)
		w.AwaitInbox(ann)
		page := w.page(w.Ctx, ann, paging.Page{}, home.Latest)
		require.Empty(w, page.Edges)
		require.True(w, page.HasNextPage)
		l := w.listenFor(ann, stream.Options{After: &page.Position})
		p := w.Post(bob, schema.Public)
		w.Drain()
		ev := l.next()
		added, ok := ev.(*stream.PostAdded)
		require.True(w, ok, "%+v", ev)
		require.Equal(w, p, added.Edge.Node.ID)
	})
}
