package timeline

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

func TestJournal(t *testing.T) {
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, _ bool) {
		s, err := New(rdb, Config{})
		require.NoError(t, err)
		ctx, user := t.Context(), int64(7)
		changes := func(since Position) ([]Change, Position, bool) {
			t.Helper()
			noted, now, whole, err := s.Changes(ctx, user, since)
			require.NoError(t, err)
			return noted, now, whole
		}
		arrive := func(a Arrival) {
			t.Helper()
			require.NoError(t, s.DeliverLate(ctx, a, []int64{user}))
		}

		// Without an inbox nothing is noted and nothing can be told.
		at, err := s.Visit(ctx, user)
		require.NoError(t, err)
		require.Zero(t, at)
		arrive(Arrival{Post: 1})
		_, now, whole := changes(Position{})
		require.Zero(t, now)
		require.False(t, whole)

		b, started, err := s.Begin(ctx, Inbox(user))
		require.NoError(t, err)
		require.True(t, started)
		begun := b.Position()
		at, err = s.Visit(ctx, user)
		require.NoError(t, err)
		require.Equal(t, begun, at)

		// What is pushed in time is not noted, what comes late is, once.
		_, err = s.Deliver(ctx, 20, []int64{user})
		require.NoError(t, err)
		arrive(Arrival{Post: 20})
		arrive(Arrival{Post: 10})
		arrive(Arrival{Post: 10})
		arrive(Arrival{Post: 11, Pulled: true})
		arrive(Arrival{Post: 11, Pulled: true})
		require.NoError(t, s.Withdraw(ctx, []int64{20}, []int64{user}))
		require.NoError(t, s.Remove(ctx, Inbox(user), 5)) // known from SQL only
		done, err := s.Finish(ctx, &b, nil, 0)
		require.NoError(t, err)
		require.False(t, done, "something was removed meanwhile")
		done, err = s.Finish(ctx, &b, []int64{3}, 0)
		require.NoError(t, err)
		require.True(t, done)
		ids, _, err := s.Page(ctx, Inbox(user), Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []int64{10, 3}, ids)
		noted, now, whole := changes(begun)
		require.True(t, whole)
		require.Equal(t, []Change{{10, false}, {11, false}, {20, true}, {5, true}}, noted)
		at, err = s.Visit(ctx, user)
		require.NoError(t, err)
		require.Equal(t, at, now)

		// From where one stands there is nothing; from further on, nobody knows.
		noted, _, whole = changes(now)
		require.True(t, whole)
		require.Empty(t, noted)
		_, _, whole = changes(Position{now.Epoch, now.Offset + 1})
		require.False(t, whole)
		_, _, whole = changes(Position{now.Epoch + 1, now.Offset})
		require.False(t, whole, "another epoch")

		// An earlier attempt may have pushed and told nobody.
		_, err = s.Deliver(ctx, 30, []int64{user})
		require.NoError(t, err)
		arrive(Arrival{Post: 30, Again: true})
		noted, now, _ = changes(now)
		require.Equal(t, []Change{{30, false}}, noted)
		// It may be taken out and come again, which is news, once.
		require.NoError(t, s.Remove(ctx, Inbox(user), 30))
		for range 2 {
			arrive(Arrival{Post: 30, Again: true})
		}
		noted, now, _ = changes(now)
		require.Equal(t, []Change{{30, true}, {30, false}}, noted)

		// The journal keeps the newest notes.
		full := now
		for id := int64(1000); id < 1000+journalCap; id++ {
			arrive(Arrival{Post: id})
		}
		noted, now, whole = changes(full)
		require.True(t, whole)
		require.Len(t, noted, journalCap)
		require.Equal(t, Change{1000, false}, noted[0])
		arrive(Arrival{Post: 2000})
		_, _, whole = changes(full)
		require.False(t, whole, "too long ago")
		noted, now, whole = changes(now)
		require.True(t, whole)
		require.Equal(t, []Change{{2000, false}}, noted)

		// Too much to note one by one.
		require.NoError(t, s.InvalidatePositions(ctx, user))
		_, later, whole := changes(now)
		require.False(t, whole)
		require.Greater(t, later.Offset, now.Offset)
		_, _, whole = changes(later)
		require.True(t, whole)

		// A lost inbox takes its journal with it.
		require.NoError(t, s.Drop(ctx, Inbox(user)))
		_, now, whole = changes(later)
		require.Zero(t, now)
		require.False(t, whole)
	})
}
