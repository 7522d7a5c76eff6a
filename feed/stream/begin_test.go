package stream_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/mute"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// The stream reads the client state before the hub is subscribed, and receives no events in
// between. It sends the changes of that time when it begins, and sends nothing that the client
// has.
func TestWhatHappensWhileAStreamBeginsIsTold(t *testing.T) {
	t.Parallel()
	// Each function changes the timeline of ann, who follows bob and has one post by bob and one
	// of her own. It returns a check of the stream's events.
	for name, change := range map[string]func(w *world, ann, bob session.Viewer, has, own int64) func(l listener){
		"nothing": func(w *world, _, _ session.Viewer, _, _ int64) func(listener) {
			return func(listener) {}
		},
		"a post comes": func(w *world, ann, bob session.Viewer, _, _ int64) func(listener) {
			id := w.History(bob, 1)[0]
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
			return func(l listener) { require.Equal(w, id, l.added()) }
		},
		"a post comes late": func(w *world, ann, bob session.Viewer, _, _ int64) func(listener) {
			id := w.postMinutesAgo(bob)
			require.NoError(w, w.Timelines.Inboxes.DeliverLate(w.Ctx, timeline.Arrival{Post: id}, []int64{ann.ID}))
			return func(l listener) { require.Equal(w, id, l.added()) }
		},
		"a post goes": func(w *world, ann, _ session.Viewer, _, own int64) func(listener) {
			require.NoError(w, w.Feed.DeletePost(w.Ctx, ann, own))
			return func(l listener) { require.Equal(w, own, l.removed()) }
		},
		"a hidden post is shown": func(w *world, ann, bob session.Viewer, has, _ int64) func(listener) {
			_, err := w.Stores.DB.Mute.Delete().Where(mute.MuterID(ann.ID)).Exec(w.Ctx)
			require.NoError(w, err)
			return func(l listener) { require.Equal(w, has, l.added()) }
		},
		"a merged author posts": func(w *world, ann, _ session.Viewer, _, _ int64) func(listener) {
			star, err := w.Stores.DB.User.Query().Where(user.Handle("star")).Only(w.Ctx)
			require.NoError(w, err)
			id := w.History(session.Viewer{ID: star.ID}, 1)[0]
			require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Outbox(star.ID), id))
			return func(l listener) { require.Equal(w, id, l.added()) }
		},
		"a post is edited": func(w *world, _, bob session.Viewer, has, _ int64) func(listener) {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(has).SetText("now").SetEditedAt(time.Now().UnixMilli()).SetChangedAt(time.Now().UnixMilli()).Exec(w.Ctx))
			return func(l listener) {
				id, text := l.updated()
				require.Equal(w, []any{has, "now"}, []any{id, text})
			}
		},
		"too much changes": func(w *world, ann, _ session.Viewer, _, _ int64) func(listener) {
			require.NoError(w, w.Timelines.Journals.InvalidatePositions(w.Ctx, ann.ID, 0))
			return func(l listener) { require.IsType(w, &stream.Invalidated{}, l.next()) }
		},
		"the inbox is lost": func(w *world, ann, _ session.Viewer, _, _ int64) func(listener) {
			require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
			return func(l listener) { require.IsType(w, &stream.Invalidated{}, l.next()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachIdle(t, func(w *world) {
				ann, bob := w.followed()
				star := w.User("star")
				require.NoError(w, w.Stores.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
				w.AwaitInbox(ann) // also reads the merged authors
				if name == "a merged author posts" {
					require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(star.ID).Exec(w.Ctx))
					require.NoError(w, w.Home.Reader.BuildOutbox(w.Ctx, star.ID))
				}
				has, own := w.History(bob, 1)[0], w.History(ann, 1)[0]
				for _, id := range []int64{has, own} {
					_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
					require.NoError(w, err)
				}
				if name == "a hidden post is shown" {
					require.NoError(w, w.Stores.DB.Mute.Create().SetMuterID(ann.ID).SetMutedID(bob.ID).Exec(w.Ctx))
				}
				var expect func(listener)
				do := func() { expect = change(w, ann, bob, has, own) }
				hook := &arrivesBeforePresence{user: ann.ID}
				hook.do.Store(&do)
				w.Stores.Redis.AddHook(hook)
				l := w.listenFor(ann, stream.Options{Updates: name == "a post is edited"})
				require.NotNil(w, expect, "it happened before the hub listened")
				expect(l)
				l.expectQuiet("nothing else happened")
			})
		})
	}
}

// A subscription does not say that it is on before it is: a post at the moment of its first frame comes,
// once. In other networks posts of the first seconds are lost. It is tried many times, because a gap would
// be short.
func TestAPostAtTheMomentOfTheFirstFrameComes(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		w.Post(bob, schema.Public)
		w.Drain()
		after := w.Top(ann)
		for range 100 {
			missed := w.Post(bob, schema.Public)
			w.Drain()
			l := w.listen(ann, after)
			require.Equal(w, missed, l.added(), "the first frame")
			id := w.Post(bob, schema.Public)
			ev := l.next()
			require.IsType(w, &stream.PostAdded{}, ev)
			require.Equal(w, id, ev.(*stream.PostAdded).Edge.Node.ID)
			l.close()

			l = w.listen(ann, nil)
			id = w.Post(bob, schema.Public)
			ev = l.next()
			require.IsType(w, &stream.PostAdded{}, ev)
			require.Equal(w, id, ev.(*stream.PostAdded).Edge.Node.ID, "a stream without a position is on when it has begun")
			after = &ev.(*stream.PostAdded).Edge.Cursor
			l.close()
		}
	})
}

// A stream that begins reads the client's posts from SQL with one query, and looks with another one
// for changed posts.
func TestAStreamBeginsWithTwoQueries(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		now := time.Now()
		w := newWorld(t, s, feedtest.Options{Now: func() time.Time { return now }})
		ann, bob := w.pair()
		w.listen(bob, nil) // reads what all streams share
		posts := []int64{w.Post(bob, schema.Public), w.Post(bob, schema.Public)}
		for _, id := range posts {
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
			require.NoError(w, err)
		}
		var l listener
		least := math.MaxInt
		for range 10 { // so that queries that run every few seconds do not count
			count := storagetest.CountQueries(w.Stores)
			l = w.listen(ann, nil)
			least = min(least, count())
		}
		require.Equal(w, 2, least)
		l.expectQuiet("the client has them")
	})
}

// Redis loses only the mark that the user is active, after a stream has subscribed and before its first visit.
// Meanwhile a post is made, which nobody pushes to the user.
func TestUserIsForgottenBeforeTheFirstVisit(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		w.Post(bob, schema.Public)
		w.Drain()
		l := w.listen(ann, w.Top(ann))
		lost := int64(0)
		for shard := range 16 {
			n, err := w.Stores.Redis.ZRem(w.Ctx, fmt.Sprintf("tl:{a%d}", shard), ann.ID).Result()
			require.NoError(w, err)
			lost += n
		}
		require.EqualValues(w, 1, lost)
		post := w.Post(bob, schema.Public)
		w.Drain()
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.Equal(w, post, l.added())
	})
}
