package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/live"
	"tideline/storage/storagetest"
)

// What is found out for all who are told of a post is what each would find out.
func TestManyAreToldTheirOwn(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		bob, eve, star := w.user("bob"), w.user("eve"), w.user("star")
		// Readers merge the star's posts.
		require.NoError(w.t, w.s.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.ctx))
		readers := w.users(12)
		ids := []int64{}
		for i, v := range readers {
			ids = append(ids, v.ID)
			w.follow(v, bob)
			w.follow(v, eve)
			if i%3 == 0 {
				w.follow(v, star)
			}
			if i%4 == 0 {
				w.follow(eve, v)
			}
			if i%4 == 1 {
				_, err := w.feed.Mute(w.ctx, v, eve.ID)
				require.NoError(w.t, err)
			}
		}
		w.settle()
		for _, v := range readers {
			w.ready(v)
		}
		for _, visibility := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals} {
			w.post(eve, visibility)
			w.post(star, visibility)
		}
		w.post(bob, schema.Public)
		w.post(readers[5], schema.Public)
		w.settle()
		for _, v := range readers[:6] {
			_, err := w.feed.MarkRead(w.ctx, v, *w.top(v))
			require.NoError(w.t, err)
		}
		w.post(eve, schema.Mutuals)
		w.settle()

		var listeners []listener
		for _, v := range readers {
			listeners = append(listeners, w.listen(v, nil))
		}
		id := w.history(bob, 1)[0]
		_, err := w.tl.Deliver(w.ctx, id, ids)
		require.NoError(w.t, err)
		_, err = w.feed.LikePost(w.ctx, readers[7], id)
		require.NoError(w.t, err)
		reached, err := w.pub.Publish(w.ctx, live.Event{Kind: live.Added, Post: id}, ids)
		require.NoError(w.t, err)
		require.Equal(w.t, len(readers), reached)
		var events []*feed.PostAdded
		for _, l := range listeners {
			ev := l.next()
			require.IsType(w.t, &feed.PostAdded{}, ev)
			events = append(events, ev.(*feed.PostAdded))
			require.Equal(w.t, id, events[0].Edge.Node.ID)
		}

		count := storagetest.CountQueries(w.s)
		var unread []int
		for i, v := range readers {
			n, err := w.feed.UnreadWith(w.ctx, v, events[i])
			require.NoError(w.t, err)
			liked, err := w.feed.LikedWith(w.ctx, v, events[i])
			require.NoError(w.t, err)
			require.Equal(w.t, i == 7, liked)
			unread = append(unread, n)
		}
		// Streams may find out about the post more than once when time runs out.
		require.LessOrEqual(w.t, count(), 3*9, "not one each")
		for i, v := range readers {
			n, err := w.feed.UnreadCount(w.ctx, v)
			require.NoError(w.t, err)
			require.Equal(w.t, n, unread[i], "reader %d", i)
			require.NotZero(w.t, n)
		}
	})
}
