package graph_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/live"
)

// between runs a function once before a query or a pipeline of scripts, while further
// fields of an event are being read.
type between struct{ then atomic.Pointer[func()] }

func (b *between) do() {
	if then := b.then.Swap(nil); then != nil {
		(*then)()
	}
}

func (b *between) Intercept(next ent.Querier) ent.Querier {
	return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
		b.do()
		return next.Query(ctx, q)
	})
}

func (*between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "evalsha") { // not the hub's heartbeat
			b.do()
		}
		return next(ctx, cmds)
	}
}

// If another process hides the post of an event after the verdict, while further fields are being read, the
// event is not sent. Subscribers who may still see the post receive it.
func TestEventThatIsHiddenWhileItIsMadeIsNotSent(t *testing.T) {
	each(t, func(c *client) {
		n := 10
		var likes, feeds, users between // users intercepts fields that are not read with the post
		c.s.DB.Like.Intercept(&likes)
		c.s.DB.UserData.Intercept(&users)
		c.s.Redis.AddHook(&feeds)
		c.Hub.Prepare(func(context.Context, live.Event) {}) // no preparation: the first reader asks for the verdict
		const unread, liked = "unreadCount", "edge { node { id viewerHasLiked } }"
		for name, test := range map[string]struct {
			fields string
			during *between
			many   bool
		}{
			"likes of many":                        {liked, &likes, true},
			"unread posts of many":                 {unread, &feeds, true},
			"likes, then unread posts":             {liked + unread, &feeds, true},
			"unread posts of one":                  {unread, &feeds, false},
			"the author, for one":                  {"edge { node { author { handle data } } }", &users, false},
			"what depends on the viewer, for many": {"edge { node { author { relationship { following } } } } " + unread, &feeds, true},
			"the author, for each of many":         {"edge { node { author { data relationship { following } } } }", &users, true},
		} {
			for why, hide := range map[string]func(author, viewer session.Viewer, post int64) error{
				"blocked": func(author, viewer session.Viewer, _ int64) error {
					if err := c.s.DB.Block.Create().SetBlockerID(author.ID).SetBlockedID(viewer.ID).Exec(c.ctx); err != nil {
						return err
					}
					_, err := c.s.SQL.ExecContext(c.ctx, "DELETE FROM follows WHERE follower_id = $1", viewer.ID)
					return err
				},
				"hidden": func(_, _ session.Viewer, post int64) error {
					return c.s.DB.Post.UpdateOneID(post).SetVisibility(schema.Private).Exec(c.ctx)
				},
			} {
				c.t.Run(name+"/"+why, func(t *testing.T) {
					handle := fmt.Sprint("user", n)
					n += 10
					author, first, second := c.User(handle+"0"), c.User(handle+"1"), c.User(handle+"2")
					for _, v := range []session.Viewer{first, second} {
						require.NoError(t, c.s.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(author.ID).Exec(c.ctx))
						c.AwaitInbox(v)
					}
					query := "subscription { e: timelineEvents { __typename ... on TimelinePostAdded { " + test.fields + " } } }"
					to := []subscriber{c.subscribe(first, query, nil)}
					if test.many {
						to = append(to, c.subscribe(second, query, nil))
					}
					tell := func(post int64) {
						ids := []int64{first.ID, second.ID}[:len(to)]
						_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: post}, ids)
						require.NoError(t, err)
					}
					post := c.History(author, 1)[0]
					var err error
					happened := false
					then := func() { err, happened = hide(author, first, post), true }
					delivered := c.Hub.Stats().Delivered
					tell(post)
					require.Eventually(t, func() bool { return c.Hub.Stats().Delivered >= delivered+uint64(len(to)) }, 30*time.Second, time.Millisecond)
					test.during.then.Store(&then)
					_, sent := to[0].Next(graph.WithViewer(c.ctx, first))
					require.NoError(t, err)
					require.True(t, happened)
					require.False(t, sent)
					require.False(t, to[0].Ended())
					if test.many {
						_, sent := to[1].Next(graph.WithViewer(c.ctx, second))
						require.Equal(t, why == "blocked", sent)
					}
				})
			}
		}
	})
}
