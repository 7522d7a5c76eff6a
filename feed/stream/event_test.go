package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage/storagetest"
)

// verdicts returns how often the streams may have read a post at most, if they began to receive it at
// that time: a verdict lasts 100 ms.
func verdicts(since time.Time) int { return 1 + int(time.Since(since)/(100*time.Millisecond)) }

// Facts that are read once for all viewers of a post equal the facts that each stream reads alone.
func TestManyAreToldTheirOwn(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		stop := w.Work()
		bob, eve, star := w.User("bob"), w.User("eve"), w.User("star")
		// Readers merge the star's posts.
		require.NoError(w, w.Stores.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
		readers := w.Users(12)
		ids := []int64{}
		for i, v := range readers {
			ids = append(ids, v.ID)
			w.Follow(v, bob)
			w.Follow(v, eve)
			if i%3 == 0 {
				w.Follow(v, star)
			}
			if i%4 == 0 {
				w.Follow(eve, v)
			}
			if i%4 == 1 {
				_, err := w.Feed.Mute(w.Ctx, v, eve.ID)
				require.NoError(w, err)
			}
		}
		w.Drain()
		for _, v := range readers {
			w.AwaitInbox(v)
		}
		for _, visibility := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals} {
			w.Post(eve, visibility)
			w.Post(star, visibility)
		}
		w.Post(bob, schema.Public)
		w.Post(readers[5], schema.Public)
		w.Drain()
		for _, v := range readers[:6] {
			_, err := w.Home.Unread.MarkRead(w.Ctx, v, *w.Top(v))
			require.NoError(w, err)
		}
		w.Post(eve, schema.Mutuals)
		w.Drain()
		stop() // the queries of workers would be counted

		var listeners []listener
		for _, v := range readers {
			listeners = append(listeners, w.listen(v, nil))
		}
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, ids)
		require.NoError(w, err)
		_, err = w.Feed.LikePost(w.Ctx, readers[7], id)
		require.NoError(w, err)
		since := time.Now()
		reached, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: live.Added, Post: id}, ids)
		require.NoError(w, err)
		require.Equal(w, len(readers), reached)
		var events []*stream.PostAdded
		for _, l := range listeners {
			ev := l.next()
			require.IsType(w, &stream.PostAdded{}, ev)
			events = append(events, ev.(*stream.PostAdded))
			require.Equal(w, id, events[0].Edge.Node.ID)
		}

		most := verdicts(since)
		count := storagetest.CountQueries(w.Stores)
		var unread []int
		for i, v := range readers {
			n, err := w.Streams.UnreadCount(w.Ctx, v, events[i])
			require.NoError(w, err)
			liked, err := w.Streams.Liked(w.Ctx, v, events[i])
			require.NoError(w, err)
			require.Equal(w, i == 7, liked)
			unread = append(unread, n)
		}
		require.LessOrEqual(w, count(), 9*most+18, "not one each")
		for i, v := range readers {
			n, err := w.Home.Unread.Count(w.Ctx, v)
			require.NoError(w, err)
			require.Equal(w, n, unread[i], "reader %d", i)
			require.NotZero(w, n)
		}
	})
}
