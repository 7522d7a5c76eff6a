package timeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestShow(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx, k, all := t.Context(), timeline.Inbox(1), timeline.Range{Limit: 9}
		require.NoError(t, s.Visits.Touch(ctx, 1))
		show := func(read timeline.Coverage, id int64) map[timeline.Key]timeline.Coverage {
			t.Helper()
			again, err := s.Feeds.Show(ctx, timeline.Showing{Key: k, Read: read, IDs: []int64{id}})
			require.NoError(t, err)
			return again
		}
		covered := func() timeline.Coverage {
			t.Helper()
			_, c, err := s.Feeds.Page(ctx, k, timeline.Range{})
			require.NoError(t, err)
			return c
		}
		missing := covered()
		require.Empty(t, show(missing, 20), "its builder will read SQL later")
		b, started, err := s.Feeds.Begin(ctx, k)
		require.True(t, err == nil && started)
		require.Equal(t, b.Coverage(), covered())

		// A feed that was rebuilt since it was read gets nothing.
		again := show(missing, 20)
		require.Contains(t, again, k)
		require.Empty(t, show(again[k], 20))
		require.NoError(t, s.Feeds.Remove(ctx, k, 5))
		again = show(again[k], 21)
		require.Contains(t, again, k, "21 may have been removed since SQL was read")
		require.Empty(t, show(again[k], 22))
		finish := func() {
			t.Helper()
			for range 2 { // something was removed
				_, err = s.Feeds.Finish(ctx, &b, []int64{10}, 0)
				require.NoError(t, err)
			}
			require.Equal(t, timeline.Ready, covered().State)
		}
		finish()
		require.Equal(t, []int64{22, 20, 10}, page(t, s, k, all))

		// A post that is shown early counts as late when its fan-out is late, once.
		at, err := s.Visits.Visit(ctx, 1)
		require.NoError(t, err)
		require.Empty(t, show(covered(), 30))
		_, err = s.Inboxes.Deliver(ctx, 31, []int64{1})
		require.NoError(t, err)
		require.Empty(t, show(covered(), 31))
		for _, id := range []int64{30, 31, 30} {
			require.NoError(t, s.Inboxes.DeliverLate(ctx, timeline.Arrival{Post: id}, []int64{1}))
		}
		changes, _, whole, err := s.Journals.Changes(ctx, 1, at)
		require.True(t, err == nil && whole)
		require.Equal(t, []timeline.Change{{Post: 30}}, changes, "31 had arrived in time")
		require.Equal(t, []int64{31, 30, 22, 20, 10}, page(t, s, k, all))

		before := covered()
		require.NoError(t, s.Feeds.Drop(ctx, k))
		require.Empty(t, show(before, 40))
		_, started, err = s.Feeds.Begin(ctx, k)
		require.True(t, err == nil && started)
		require.Contains(t, show(before, 40), k, "of another epoch")

		// The latest id of an outbox rises with it.
		k = timeline.Outbox(2)
		_, err = s.Latest.IDs(ctx, []int64{2})
		require.NoError(t, err)
		b, started, err = s.Feeds.Begin(ctx, k)
		require.True(t, err == nil && started)
		require.Empty(t, show(b.Coverage(), 50))
		finish()
		require.Equal(t, []int64{50, 10}, page(t, s, k, all))
		latest, err := s.Latest.IDs(ctx, []int64{2})
		require.NoError(t, err)
		require.NotContains(t, latest.IDs, int64(10))
	})
}
