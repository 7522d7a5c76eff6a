package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/stream"
	"tideline/live"
)

// told makes the listener be told, and returns the channel that says so.
func (l listener) told() <-chan struct{} {
	told := make(chan struct{}, 32)
	l.stream.TellBy(func() <-chan struct{} {
		select {
		case told <- struct{}{}:
		default: // more than is looked at
		}
		return nil
	})
	return told
}

// many makes an author with followers, and a function that tells them of a post.
func (w *world) many() (bob account.Viewer, readers []account.Viewer, tell func(kind live.Kind, post int64)) {
	bob, readers = w.User("bob"), w.Users(2)
	var ids []int64
	for _, v := range readers {
		require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
		w.AwaitInbox(v)
		ids = append(ids, v.ID)
	}
	return bob, readers, func(kind live.Kind, post int64) {
		reached, err := w.Publisher.Publish(w.Ctx, live.Event{Kind: kind, Post: post}, ids)
		require.NoError(w, err)
		require.Equal(w, len(ids), reached)
	}
}

// An event that was hidden between the look and the sending is not sent, and one that
// was hidden before is not even looked at.
func TestSharedEventIsNotSentOnceHidden(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob, readers, tell := w.many()
		l, other := w.listen(readers[0], nil), w.listen(readers[1], nil)
		defer other.close()
		told := l.told()
		post := w.History(bob, 1)[0]
		tell(live.Added, post)
		<-told
		event, ok := l.stream.Shared()
		if ok { // unless the machine took more than the life of a verdict
			_, err := w.Feed.SetVisibility(w.Ctx, bob, post, schema.Private)
			require.NoError(w, err)
			require.False(w, l.stream.TakeShared(event))
			_, sent := l.stream.Next(l.ctx)
			require.False(w, sent)
		}

		_, err := w.Feed.Mute(w.Ctx, readers[0], bob.ID)
		require.NoError(w, err)
		tell(live.Added, w.History(bob, 1)[0])
		<-told
		_, ok = l.stream.Shared()
		require.False(w, ok)
		_, sent := l.stream.Next(l.ctx)
		require.False(w, sent)
		require.False(w, l.stream.Ended())
	})
}

// An event of a user who is suspended, or deletes the account, between the look and the sending
// is not sent either.
func TestSharedEventIsNotSentOnceTheAuthorIsHidden(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(w *world, id int64) error{
		"suspended": func(w *world, id int64) error {
			_, err := w.Sessions.Suspend(w.Ctx, id, func(*ent.Tx, *ent.User) error { return nil })
			return err
		},
		"leaving": func(w *world, id int64) error {
			_, _, err := w.Sessions.Delete(w.Ctx, id, feedtest.Grace)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachIdle(t, func(w *world) {
				bob, readers, tell := w.many()
				l, other := w.listen(readers[0], nil), w.listen(readers[1], nil)
				defer other.close()
				told := l.told()
				tell(live.Added, w.History(bob, 1)[0])
				<-told
				event, looked := l.stream.Shared() // unless the machine took more than the life of a verdict
				require.NoError(w, hide(w, bob.ID))
				if looked {
					require.False(w, l.stream.TakeShared(event))
				}
				_, sent := l.stream.Next(l.ctx)
				require.False(w, sent)
			})
		})
	}
}

// What a stream sends as a shared event is known to the client as what Next returns:
// it is told once, in its order, and its cursor resumes after it.
func TestSharedEventIsToldOnce(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob, readers, tell := w.many()
		l, other := w.listen(readers[0], nil), w.listen(readers[1], nil)
		defer other.close()
		told := l.told()
		_, ok := l.stream.Shared()
		require.False(w, ok, "nothing has come")
		for deadline := time.Now().Add(30 * time.Second); ; { // a verdict may have been too old
			require.True(w, time.Now().Before(deadline))
			post := w.History(bob, 1)[0]
			_, err := w.Timelines.Deliver(w.Ctx, post, []int64{readers[0].ID, readers[1].ID})
			require.NoError(w, err)
			tell(live.Added, post)
			<-told
			event, ok := l.stream.Shared()
			if !ok || !l.stream.TakeShared(event) {
				require.Equal(w, post, l.added())
				continue
			}
			added := event.(*stream.PostAdded)
			require.Equal(w, post, added.Edge.Node.ID)
			tell(live.Added, post)
			<-told
			_, ok = l.stream.Shared()
			require.False(w, ok, "the client has it")
			_, again := l.stream.Next(l.ctx)
			require.False(w, again)
			own := string(l.stream.AppendOwn(nil, added))
			_, missed := w.listen(readers[0], &own).stream.Next(w.Ctx)
			require.False(w, missed)
			break
		}

		// What has to be read keeps its order.
		first, second := w.History(bob, 1)[0], w.History(bob, 1)[0]
		tell(live.Removed, first)
		tell(live.Added, second)
		<-told
		<-told
		_, ok = l.stream.Shared()
		require.False(w, ok, "a removal comes first")
	})
}
