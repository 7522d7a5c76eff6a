package stream_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/moderation"
	"tideline/feed/paging"
	"tideline/feed/stream"
)

// Open streams receive an event when moderators hide a post or show it again.
func TestModerationIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.followed()
		id := w.History(bob, 1)[0]
		w.AwaitInbox(ann)
		l := w.listen(ann, nil)
		_, err := w.Moderation.HidePost(w.Ctx, moderation.Console, id, "")
		require.NoError(w, err)
		require.Equal(w, id, l.removed())
		_, err = w.Moderation.UnhidePost(w.Ctx, moderation.Console, id, "")
		require.NoError(w, err)
		require.Equal(w, id, l.added())
		w.Drain()
		// If the job of hiding runs late, the removal and the post may be sent once more, before the
		// next post.
		own := w.Post(ann, schema.Private)
		there := true
		for got := int64(0); got != own; {
			switch ev := l.next().(type) {
			case *stream.PostRemoved:
				require.Equal(w, id, ev.PostID)
				there = false
			case *stream.PostAdded:
				got = ev.Edge.Node.ID
				there = there || got == id
			default:
				require.Fail(w, "another event", "%T", ev)
			}
		}
		require.True(w, there)
		w.Drain()
		for _, judge := range []func() (bool, error){
			func() (bool, error) {
				return w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "", account.Suspension{})
			},
			func() (bool, error) { return w.Moderation.Unsuspend(w.Ctx, moderation.Console, bob.ID, "") },
		} {
			_, err = judge()
			require.NoError(w, err)
			require.IsType(w, &stream.Invalidated{}, l.next())
			w.Drain()
		}
		require.Equal(w, []int64{own, id}, w.Timeline(ann, 9))
	})
}

// Authors are told on all their devices, also when they resume, that they deleted a post. For all
// other viewers a deleted post looks like a hidden one.
func TestOnlyAuthorsAreToldThatAPostWasDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.followed()
		ids := w.History(bob, 3)
		w.AwaitInbox(ann)
		w.AwaitInbox(bob)
		own := w.Post(ann, schema.Public)
		w.Drain()
		before := map[int64]*string{ann.ID: w.Top(ann), bob.ID: w.Top(bob)}
		ofAnn, ofBob := w.listen(ann, nil), w.listen(bob, nil)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, ids[0]))
		_, err := w.Feed.SetVisibility(w.Ctx, bob, ids[1], schema.Private)
		require.NoError(w, err)
		_, err = w.Moderation.HidePost(w.Ctx, moderation.Console, ids[2], "")
		require.NoError(w, err)
		w.Drain()
		require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, own))
		w.Drain()
		// told returns the removed posts, and whether each was sent as deleted, after n removals.
		told := func(l listener, n int) map[int64]bool {
			deleted := map[int64]bool{}
			for len(deleted) < n {
				if ev, ok := l.next().(*stream.PostRemoved); ok {
					deleted[ev.PostID] = ev.Deleted
				}
			}
			return deleted
		}
		toAnn, toBob := map[int64]bool{ids[0]: false, ids[1]: false, ids[2]: false, own: true}, map[int64]bool{ids[0]: true}
		require.Equal(w, toAnn, told(ofAnn, 4))
		require.Equal(w, toBob, told(ofBob, 1))
		require.Equal(w, toAnn, told(w.listen(ann, before[ann.ID]), 4), "who comes back")
		require.Equal(w, toBob, told(w.listen(bob, before[bob.ID]), 1))
	})
}

// One of several users who post, like and read is suspended. No read that begins afterwards has a post
// of that user, and at the end no client has one. After the suspension all posts are back.
func TestSuspensionUnderLoad(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		users := w.Users(4)
		bad, readers := users[0], users[1:]
		var listeners []listener
		for _, v := range readers {
			for _, other := range users {
				if v != other {
					w.Follow(v, other)
				}
			}
		}
		w.Drain()
		for _, v := range readers {
			w.AwaitInbox(v)
			listeners = append(listeners, w.listen(v, nil))
		}
		ctx, stop := context.WithCancel(w.Ctx)
		defer stop()
		var suspended atomic.Bool
		var posted, read, wrong atomic.Int64
		var all sync.WaitGroup
		for _, v := range users {
			all.Go(func() {
				for ctx.Err() == nil {
					_, err := w.Feed.CreatePost(w.Ctx, v, feed.Draft{Text: "hello"})
					if v == bad {
						if err == nil {
							posted.Add(1)
						}
						continue
					}
					after := suspended.Load()
					page, err := w.Home.Timeline(w.Ctx, v, paging.Page{}, "")
					if err != nil {
						continue
					}
					for _, p := range page.Nodes() {
						_, _ = w.Feed.LikePost(w.Ctx, v, p.ID)
						if after && p.AuthorID == bad.ID {
							wrong.Add(1)
						}
					}
					if after {
						read.Add(1)
					}
				}
			})
		}
		atLeast := func(n int64, of *atomic.Int64) {
			w.Helper()
			require.Eventually(w, func() bool { return of.Load() >= n }, time.Minute, time.Millisecond)
		}
		atLeast(5, &posted)
		_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, bad.ID, "", account.Suspension{})
		require.NoError(w, err)
		suspended.Store(true)
		atLeast(10, &read)
		stop()
		all.Wait()
		require.Zero(w, wrong.Load(), "posts of somebody suspended were read")
		w.Drain()
		for i, l := range listeners {
			held, own := map[int64]int64{}, w.Post(readers[i], schema.Private)
			for held[own] == 0 {
				switch ev := l.next().(type) {
				case *stream.PostAdded:
					held[ev.Edge.Node.ID] = ev.Edge.Node.AuthorID
				case *stream.PostRemoved:
					delete(held, ev.PostID)
				default: // the client reads again and forgets what it had
					clear(held)
					own = w.Post(readers[i], schema.Private)
				}
			}
			for _, author := range held {
				require.NotEqual(w, bad.ID, author)
			}
		}
		_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, bad.ID, "")
		require.NoError(w, err)
		w.Drain()
		for _, v := range readers {
			seen := w.Walk(v, 50, nil)
			for _, id := range w.Stores.DB.Post.Query().Where(post.AuthorID(bad.ID)).IDsX(w.Ctx) {
				require.Contains(w, seen, id)
			}
		}
	})
}
