package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/stream"
	"tideline/live"
)

// told sets with SetTell a function that sends to the returned channel at each call.
func (l listener) told() <-chan struct{} {
	told := make(chan struct{}, 32)
	l.stream.SetTell(func() <-chan struct{} {
		select {
		case told <- struct{}{}:
		default: // more calls than the test needs
		}
		return nil
	})
	return told
}

// many creates an author with two followers, and returns a function that publishes an event of a post
// to both.
func (w *world) many() (bob session.Viewer, readers []session.Viewer, tell func(kind live.Kind, post int64)) {
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

// TakeShared does not send a post that was hidden after Shared, and Shared does not return a post that
// was hidden before.
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
		if ok { // on a slow machine the verdict may have expired
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

// TakeShared does not send a post whose author was suspended, or deleted the account, after Shared.
func TestSharedEventIsNotSentOnceTheAuthorIsHidden(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(w *world, id int64) error{
		"suspended": func(w *world, id int64) error {
			_, err := w.Accounts.Suspend(w.Ctx, id, account.Suspension{}, func(*ent.Tx, *ent.User) error { return nil })
			return err
		},
		"leaving": func(w *world, id int64) error {
			_, _, err := w.Accounts.Delete(w.Ctx, id, feedtest.Grace)
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
				event, looked := l.stream.Shared() // on a slow machine the verdict may have expired
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

// An event that is sent with TakeShared counts as sent, like an event of Next: it is sent once and in
// order, and a client can resume after its cursor.
func TestSharedEventIsToldOnce(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		bob, readers, tell := w.many()
		l, other := w.listen(readers[0], nil), w.listen(readers[1], nil)
		defer other.close()
		told := l.told()
		_, ok := l.stream.Shared()
		require.False(w, ok, "nothing has come")
		for deadline := time.Now().Add(30 * time.Second); ; { // try again if the verdict has expired
			require.True(w, time.Now().Before(deadline))
			post := w.History(bob, 1)[0]
			_, err := w.Timelines.Inboxes.Deliver(w.Ctx, post, []int64{readers[0].ID, readers[1].ID})
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

		// Shared returns nothing while an earlier event has to go through Next.
		first, second := w.History(bob, 1)[0], w.History(bob, 1)[0]
		tell(live.Removed, first)
		tell(live.Added, second)
		<-told
		<-told
		_, ok = l.stream.Shared()
		require.False(w, ok, "a removal comes first")
	})
}
