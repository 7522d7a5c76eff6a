package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// Redis returns to an older state, from before some posts, follows and cursors. Every post is still in
// every timeline and profile that it belongs to, and every resuming client is told to read again.
func TestRedisComesBackOlder(t *testing.T) {
	t.Parallel()
	t.Run("restarted from a snapshot", func(t *testing.T) {
		t.Parallel()
		s := storagetest.Real(t)
		r := storagetest.Redis(t, s)
		comesBackOlder(&world{feedtest.Idle(t, s, mergingAll())},
			func() { r.Snapshot(t) }, func() { r.Restart(t) })
	})
	t.Run("a replica without the tail takes over", func(t *testing.T) {
		t.Parallel()
		s := storagetest.Real(t)
		r, replica := storagetest.Redis(t, s), storagetest.StartRedis(t)
		replica.Follow(t, r) // a master gets another replication id with its first replica
		comesBackOlder(&world{feedtest.Idle(t, s, mergingAll())},
			func() { replica.Follow(t, r); replica.Promote(t) }, func() { replica.TakeOver(t, r) })
	})
}

// mergingAll makes reads that merge two authors read the latest post ids first.
func mergingAll() feedtest.Options { return feedtest.Options{Policy: home.Policy{MergeAll: 1}} }

func comesBackOlder(w *world, remember, rollBack func()) {
	w.Helper()
	bob, stars := w.User("bob"), []session.Viewer{w.User("star"), w.User("comet")}
	for _, star := range stars {
		require.NoError(w, w.Stores.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
	}
	authors := append([]session.Viewer{bob}, stars...)
	readers := w.Users(5)
	w.Work()
	last := readers[len(readers)-1]
	for _, reader := range readers {
		for _, author := range authors {
			if reader != last || author != bob {
				w.Follow(reader, author)
			}
		}
	}
	posts := map[session.Viewer][]int64{}
	post := func() {
		for _, author := range authors {
			posts[author] = append(posts[author], w.Post(author, schema.Public))
		}
		w.Drain()
	}
	check := func(when string) {
		w.Helper()
		for _, reader := range readers {
			var want []int64
			for _, author := range authors {
				want = append(want, posts[author]...)
			}
			require.Equal(w, feedtest.NewestFirst(want...), w.Timeline(reader, 50), "%s: timeline of %d", when, reader.ID)
			require.Equal(w, feedtest.NewestFirst(want...)[:2], w.Timeline(reader, 2), "%s: the newest of %d", when, reader.ID)
		}
		for _, author := range authors {
			list, _, err := w.Home.Reader.PostsBy(w.Ctx, readers[0].ID, author.ID, timeline.Range{Limit: 50})
			require.NoError(w, err)
			var got []int64
			for _, p := range list {
				got = append(got, p.ID)
			}
			require.Equal(w, feedtest.NewestFirst(posts[author]...), got, "%s: profile of %d", when, author.ID)
		}
	}
	ready := func() {
		w.Helper()
		for _, reader := range readers {
			w.AwaitInbox(reader)
		}
		for _, author := range authors {
			require.Eventually(w, func() bool {
				_, _, err := w.Home.Reader.PostsBy(w.Ctx, bob.ID, author.ID, timeline.Range{Limit: 1})
				require.NoError(w, err)
				_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Outbox(author.ID), timeline.Range{})
				return err == nil && covered.State == timeline.Ready
			}, time.Minute, 5*time.Millisecond)
		}
	}
	post()
	ready()
	cursors := []*string{w.Top(readers[0])}
	remember()

	w.Follow(last, bob)
	for range 3 {
		post()
	}
	gone := posts[bob][1]
	require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, gone))
	posts[bob] = append(posts[bob][:1:1], posts[bob][2:]...)
	w.Drain()
	check("before")
	cursors = append(cursors, w.Top(readers[0]))
	rollBack()

	require.Eventually(w, func() bool { return w.Stores.Redis.Ping(w.Ctx).Err() == nil }, time.Minute, time.Millisecond)
	check("the first read")
	post()
	ready()
	check("from Redis again")
	for _, after := range cursors {
		l := w.listen(readers[0], after)
		require.IsType(w, &stream.Invalidated{}, l.next())
		l.close()
	}
	post()
	check("at last")
}
