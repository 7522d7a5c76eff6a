package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/timeline"
)

// If a first attempt changes the inbox and then notifies nobody, the next attempt does.
func TestChangedInboxIsToldAtLast(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		w.tell(ann, id)
		require.Equal(w, id, l.added())
		_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
		require.NoError(w, err)
		changed, err := w.Home.Sync.Inbox(w.Ctx, ann.ID, bob.ID)
		require.NoError(w, err)
		require.True(w, changed)
		require.NoError(w, w.Home.Sync.InboxAndNotify(w.Ctx, ann.ID, bob.ID, 0, false))
		require.Equal(w, id, l.removed())
	})
}

// After a change of a relation, a client is told once to read again. The event of the change sends
// nothing if the client has been told before, or if its stream began after the positions of that time
// were invalidated.
func TestReadAgainIsToldOnce(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		l := w.listen(ann, nil)
		publish := func(ev live.Event) {
			_, err := w.Publisher.Publish(w.Ctx, ev, []int64{ann.ID})
			require.NoError(w, err)
		}
		publish(live.Event{Kind: live.JournalChanged}) // as from a fan-out; the stream handles it later
		_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
		require.NoError(w, err)
		require.NoError(w, w.Home.Sync.InboxAndNotify(w.Ctx, ann.ID, bob.ID, 0, false))
		require.IsType(w, &stream.Invalidated{}, l.next())
		l.expectQuiet("the client has been told")

		require.NoError(w, w.Timelines.Journals.InvalidatePositions(w.Ctx, ann.ID, 0))
		later := w.listen(ann, nil)
		publish(live.Event{Kind: live.Invalidated})
		later.expectQuiet("the client began to listen after that")
		require.IsType(w, &stream.Invalidated{}, l.next(), "this one did not")
	})
}

// diesBehind is a Redis hook. Once a marked context has written the id, all its later pipelines fail.
type diesBehind struct {
	id   atomic.Int64
	dead atomic.Bool
}

// dying is the key that marks the context of an attempt that dies.
type dying struct{}

func (d *diesBehind) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (d *diesBehind) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (d *diesBehind) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if ctx.Value(dying{}) == nil {
			return next(ctx, cmds)
		}
		if d.dead.Load() {
			cmds[0].SetErr(errors.New("this attempt is dead"))
			return cmds[0].Err()
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() == nil && slices.Contains(cmd.Args(), any(strconv.FormatInt(d.id.Load(), 10))) {
				d.dead.Store(true)
			}
		}
		return err
	}
}

// An attempt that changes an inbox after a change of a relation dies right after its write. The next
// attempt finds nothing to change, and still tells clients to read again.
func TestChangeWhoseAttemptDiesIsTold(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.History(ann, 1)
		w.AwaitInbox(ann)
		hook := &diesBehind{}
		w.Stores.Redis.AddHook(hook)
		l := w.listen(ann, nil)
		hook.id.Store(w.History(bob, 1)[0])
		for _, follows := range []bool{true, false} {
			after := w.Top(ann)
			var err error
			if follows {
				err = w.Stores.DB.Follow.Create().SetFollowerID(ann.ID).SetFolloweeID(bob.ID).Exec(w.Ctx)
			} else {
				_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
			}
			require.NoError(w, err)
			hook.dead.Store(false)
			require.Error(w, w.Home.Sync.InboxAndNotify(context.WithValue(w.Ctx, dying{}, true), ann.ID, bob.ID, 0, false))
			require.True(w, hook.dead.Load())
			require.NoError(w, w.Home.Sync.InboxAndNotify(w.Ctx, ann.ID, bob.ID, 0, false))
			own := w.History(ann, 1)[0]
			w.tell(ann, own)
			require.IsType(w, &stream.Invalidated{}, l.next(), "follows: %v", follows)
			require.Equal(w, own, l.added(), "once")
			require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "also when resuming")
		}
	})
}

// The job of a change runs late, while the inbox is built for a client that began to read after the
// change. The client is sent nothing.
func TestLateJobOfAChangeTellsNothing(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.History(bob, 1)
		w.Follow(ann, bob)
		_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
		require.NoError(w, err)
		_, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Inbox(ann.ID))
		require.True(w, err == nil && begun)
		after := w.Top(ann)
		l := w.listen(ann, nil)
		w.Work()
		w.Drain()
		l.expectNothingBefore(bob)
		w.listen(ann, after).added()
	})
}

// If the process that changes a relation dies before it notifies anybody, the job does it.
func TestJobOfAChangeTellsWhatItsMakerDidNot(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		id := w.History(bob, 1)[0]
		_, err := w.Timelines.Inboxes.Deliver(w.Ctx, id, []int64{ann.ID})
		require.NoError(w, err)
		l := w.listen(ann, nil)
		hook := &diesBehind{}
		hook.id.Store(id)
		w.Stores.Redis.AddHook(hook)
		_, err = w.Feed.Unfollow(context.WithValue(w.Ctx, dying{}, true), ann, bob.ID)
		require.NoError(w, err)
		require.True(w, hook.dead.Load())
		w.Work()
		w.Drain()
		require.IsType(w, &stream.Invalidated{}, l.next())
		l.expectNothingBefore(ann)
	})
}

// A client has read from SQL, because the inbox is being built, before a relation changes. It is told
// to read again, even if the inbox is lost before the change is handled.
func TestClientThatReadWithoutAnInboxIsTold(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost=", lost), func(t *testing.T) {
			eachIdle(t, func(w *world) {
				ann, bob := w.followed()
				w.History(bob, 1)
				_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
				require.NoError(w, err)
				_, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Inbox(ann.ID))
				require.True(w, err == nil && begun)
				after := w.Top(ann)
				l := w.listen(ann, nil)
				_, err = w.Stores.DB.Follow.Delete().Exec(w.Ctx)
				require.NoError(w, err)
				if lost {
					require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
				}
				require.NoError(w, w.Home.Sync.InboxAndNotify(w.Ctx, ann.ID, bob.ID, 0, false))
				require.IsType(w, &stream.Invalidated{}, l.next())
				require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "and who comes back")
			})
		})
	}
}

// A muted user must not learn of the mute, not even when the inboxes are lost.
func TestMuteIsNotToldToTheMuted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Befriend(ann, bob)
		w.Drain()
		for _, change := range []func(context.Context, session.Viewer, int64) (*ent.User, error){w.Feed.Mute, w.Feed.Unmute} {
			w.AwaitInbox(ann)
			w.AwaitInbox(bob)
			muting, muted := w.listen(ann, nil), w.listen(bob, nil)
			for _, v := range []session.Viewer{ann, bob} {
				require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(v.ID)))
			}
			_, err := change(w.Ctx, ann, bob.ID)
			require.NoError(w, err)
			w.Drain()
			require.IsType(w, &stream.Invalidated{}, muting.next())
			muted.expectNothingBefore(bob)
			w.Drain()
			muting.close()
			muted.close()
		}
	})
}

// A user who is removed as a follower is told to read again, as after an unfollow. So is the user who
// removed the follower, because posts for friends leave that timeline.
func TestRemovedFollowerIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Befriend(ann, bob)
		w.Post(ann, schema.Public)
		w.Post(bob, schema.Mutuals)
		w.Drain()
		for _, v := range []session.Viewer{ann, bob} {
			w.AwaitInbox(v)
			require.Len(w, w.Timeline(v, 10), 2)
		}
		after := w.Top(bob)
		removing, removed := w.listen(ann, nil), w.listen(bob, nil)
		_, err := w.Feed.RemoveFollower(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, removing.next())
		require.IsType(w, &stream.Invalidated{}, removed.next())
		require.IsType(w, &stream.Invalidated{}, w.listen(bob, after).next(), "and who comes back")
		require.Len(w, w.Timeline(bob, 10), 1)
		require.Len(w, w.Timeline(ann, 10), 1)
	})
}

// When a client has been told to read again, the stream forgets which posts and removals it sent
// before. So it sends a later removal, or a post, a second time.
func TestWhatIsReadAgainIsToldAgain(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		id := w.History(bob, 1)[0]
		set := func(v schema.Visibility) {
			require.NoError(w, w.Stores.DB.Post.UpdateOneID(id).SetVisibility(v).Exec(w.Ctx))
		}
		tell := func(kind live.Kind) {
			_, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: kind, Post: id, Author: bob.ID}, []int64{ann.ID})
			require.NoError(w, err)
		}
		tell(live.Added)
		require.Equal(w, id, l.added())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w, id, l.removed())
		set(schema.Public)
		require.NoError(w, w.Timelines.Journals.InvalidatePositions(w.Ctx, ann.ID, 0)) // as every publisher of an Invalidated does
		tell(live.Invalidated)
		require.IsType(w, &stream.Invalidated{}, l.next())
		set(schema.Private)
		tell(live.Removed)
		require.Equal(w, id, l.removed(), "the client has read it")
		set(schema.Public)
		tell(live.Added)
		after := l.position()
		l.close()
		set(schema.Private)
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Inbox(ann.ID)))
		l = w.listen(ann, after)
		require.IsType(w, &stream.Invalidated{}, l.next())
		set(schema.Public)
		tell(live.Added)
		require.Equal(w, id, l.added(), "the client has not found it")
	})
}
