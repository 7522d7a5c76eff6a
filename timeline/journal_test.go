package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
)

func TestJournal(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, err := New(rdb, Config{})
		require.NoError(t, err)
		ctx, user := t.Context(), int64(7)
		changes := func(since Position) ([]Change, Position, bool) {
			t.Helper()
			list, now, whole, err := s.Journals.Changes(ctx, user, since)
			require.NoError(t, err)
			return list, now, whole
		}
		deliverLate := func(a Arrival) {
			t.Helper()
			require.NoError(t, s.Inboxes.DeliverLate(ctx, a, []int64{user}))
		}

		// Without an inbox there is no journal, and changes are unknown.
		at, err := s.Visits.Visit(ctx, user)
		require.NoError(t, err)
		require.Zero(t, at)
		deliverLate(Arrival{Post: 1})
		_, now, whole := changes(Position{})
		require.Zero(t, now)
		require.False(t, whole)

		b, started, err := s.Feeds.Begin(ctx, Inbox(user))
		require.NoError(t, err)
		require.True(t, started)
		begun := b.Position()
		at, err = s.Visits.Visit(ctx, user)
		require.NoError(t, err)
		require.Equal(t, begun, at)

		// A post in time is not in the journal. A late post is, once.
		_, err = s.Inboxes.Deliver(ctx, 20, []int64{user})
		require.NoError(t, err)
		deliverLate(Arrival{Post: 20})
		deliverLate(Arrival{Post: 10})
		deliverLate(Arrival{Post: 10})
		deliverLate(Arrival{Post: 11, Pulled: true})
		deliverLate(Arrival{Post: 11, Pulled: true})
		require.NoError(t, s.Inboxes.Withdraw(ctx, []int64{20}, []int64{user}))
		require.NoError(t, s.Feeds.Remove(ctx, Inbox(user), 5)) // known from SQL only
		done, err := s.Feeds.Finish(ctx, &b, nil, 0)
		require.NoError(t, err)
		require.False(t, done, "something was removed meanwhile")
		done, err = s.Feeds.Finish(ctx, &b, []int64{3}, 0)
		require.NoError(t, err)
		require.True(t, done)
		ids, _, err := s.Feeds.Page(ctx, Inbox(user), Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []int64{10, 3}, ids)
		list, now, whole := changes(begun)
		require.True(t, whole)
		require.Equal(t, []Change{{Post: 10}, {Post: 11}, {Post: 20, Removed: true}, {Post: 5, Removed: true}}, list)
		at, err = s.Visits.Visit(ctx, user)
		require.NoError(t, err)
		require.Equal(t, at, now)

		// There are no changes since the end. Changes since a later position are unknown.
		list, _, whole = changes(now)
		require.True(t, whole)
		require.Empty(t, list)
		_, _, whole = changes(Position{now.Epoch, now.Offset + 1})
		require.False(t, whole)
		_, _, whole = changes(Position{now.Epoch + 1, now.Offset})
		require.False(t, whole, "another epoch")

		// An earlier attempt may have pushed the post without an event.
		_, err = s.Inboxes.Deliver(ctx, 30, []int64{user})
		require.NoError(t, err)
		deliverLate(Arrival{Post: 30, Again: true})
		list, now, _ = changes(now)
		require.Equal(t, []Change{{Post: 30}}, list)
		// A post that was removed and arrives again is in the journal again, once.
		require.NoError(t, s.Feeds.Remove(ctx, Inbox(user), 30))
		for range 2 {
			deliverLate(Arrival{Post: 30, Again: true})
		}
		list, now, _ = changes(now)
		require.Equal(t, []Change{{Post: 30, Removed: true}, {Post: 30}}, list)

		// Users who had a post learn only of its return.
		require.NoError(t, s.Feeds.Replace(ctx, user, nil, []int64{31}, 0, false))
		for _, a := range []Arrival{{Post: 31, Had: true}, {Post: 31, Had: true, Again: true}, {Post: 32, Had: true, Pulled: true}} {
			deliverLate(a)
			list, _, whole = changes(now)
			require.True(t, whole)
			require.Empty(t, list, a)
		}
		require.NoError(t, s.Feeds.Remove(ctx, Inbox(user), 31))
		require.NoError(t, s.Inboxes.RemoveUnjournaled(ctx, []int64{30}, []int64{user}))
		for range 2 {
			deliverLate(Arrival{Post: 31, Had: true})
			deliverLate(Arrival{Post: 30, Had: true})
		}
		_, now, whole = changes(now)
		require.False(t, whole, "unjournaled")
		require.NoError(t, s.Feeds.Remove(ctx, Inbox(user), 31))
		deliverLate(Arrival{Post: 31, Had: true})
		list, now, _ = changes(now)
		require.Equal(t, []Change{{Post: 31, Removed: true}, {Post: 31}}, list)

		// The journal records that a post was deleted by its author.
		require.NoError(t, s.Feeds.RemoveDeleted(ctx, Inbox(user), 31, 35))
		require.Zero(t, s.Own.Change(ctx, OwnChange{Author: user, Post: 36, Gone: true}))
		list, now, _ = changes(now)
		require.Equal(t, []Change{{Post: 31, Removed: true, Deleted: true}, {Post: 35, Removed: true, Deleted: true}, {Post: 36, Removed: true, Deleted: true}}, list)
		deliverLate(Arrival{Post: 31, Again: true})
		list, now, _ = changes(now)
		require.Equal(t, []Change{{Post: 31}}, list)

		// Erase does not change the journal.
		_, err = s.Inboxes.Deliver(ctx, 40, []int64{user})
		require.NoError(t, err)
		require.NoError(t, s.Inboxes.Erase(ctx, []int64{39, 40}, []int64{user}))
		list, _, whole = changes(now)
		require.True(t, whole)
		require.Empty(t, list)

		// The journal keeps the newest entries.
		full := now
		for id := int64(1000); id < 1000+journalCap; id++ {
			deliverLate(Arrival{Post: id})
		}
		list, now, whole = changes(full)
		require.True(t, whole)
		require.Len(t, list, journalCap)
		require.Equal(t, Change{Post: 1000}, list[0])
		deliverLate(Arrival{Post: 2000})
		_, _, whole = changes(full)
		require.False(t, whole, "too long ago")
		list, now, whole = changes(now)
		require.True(t, whole)
		require.Equal(t, []Change{{Post: 2000}}, list)

		// Too many changes to add one by one.
		require.NoError(t, s.Journals.InvalidatePositions(ctx, user, 0))
		_, later, whole := changes(now)
		require.False(t, whole)
		require.Greater(t, later.Offset, now.Offset)
		_, _, whole = changes(later)
		require.True(t, whole)

		// A change invalidates positions once, even if several callers report it.
		for _, change := range []int64{7, 77} {
			require.NoError(t, s.Journals.InvalidatePositions(ctx, user, change))
			_, now, whole = changes(later)
			require.False(t, whole)
			for _, told := range []int64{change, 7} {
				require.NoError(t, s.Journals.InvalidatePositions(ctx, user, told))
				_, _, whole = changes(now)
				require.True(t, whole)
			}
			later = now
		}

		// Replace does not add its changes one by one either. It invalidates positions in the same
		// step, if it changes anything.
		require.NoError(t, s.Feeds.Replace(ctx, user, []int64{2000}, []int64{50}, 0, false))
		list, now, whole = changes(later)
		require.True(t, whole)
		require.Equal(t, []Change{{Post: 2000, Removed: true}}, list)
		require.NoError(t, s.Feeds.Replace(ctx, user, nil, []int64{50}, 0, true))
		_, _, whole = changes(now)
		require.True(t, whole, "nothing new")
		require.NoError(t, s.Feeds.Replace(ctx, user, nil, []int64{60}, 0, true))
		_, later, whole = changes(now)
		require.False(t, whole)
		require.NoError(t, s.Feeds.Replace(ctx, user, []int64{60}, nil, 0, true))
		_, now, whole = changes(later)
		require.False(t, whole)
		ids, _, err = s.Feeds.Page(ctx, Inbox(user), Range{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, []int64{1000 + journalCap - 1}, ids)
		later = now

		// A lost inbox loses its journal too.
		require.NoError(t, s.Feeds.Drop(ctx, Inbox(user)))
		_, now, whole = changes(later)
		require.Zero(t, now)
		require.False(t, whole)
	})
}
