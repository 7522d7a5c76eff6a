package timeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func latestKey(author int64) string { return "tl:{n" + activeKey(author)[len("tl:{a"):] }

// requireLatest requires the ids that are known for the authors.
func requireLatest(t testing.TB, s *timeline.Store, authors []int64, want ...int64) timeline.LatestPosts {
	t.Helper()
	n, err := s.Latest.IDs(t.Context(), authors)
	require.NoError(t, err)
	require.Equal(t, want, n.IDs)
	return n
}

func TestLatestIsNeverBelowTheOutbox(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 5))
		exist, err := rdb.Exists(ctx, latestKey(1)).Result()
		require.NoError(t, err)
		require.Zero(t, exist, "nobody has asked")

		authors := []int64{1, 2, 3, 1 << 40}
		n := requireLatest(t, s, authors, -1, -1, -1, -1)
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(2), 7))
		requireLatest(t, s, authors, -1, -1, -1, -1) // 7 may be an old post that arrives late
		require.NoError(t, s.Latest.Store(ctx, n, map[int64]int64{1: 5, 2: 6, 3: 0}))
		requireLatest(t, s, authors, 5, 7, 0, -1) // 7 arrived after SQL was read

		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 8))
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 4))
		require.NoError(t, s.Feeds.Add(ctx, timeline.Inbox(2), 99))
		build(t, s, timeline.Outbox(3), []int64{2, 9, 3}, 0)
		requireLatest(t, s, authors, 8, 7, 9, -1)
		require.NoError(t, s.Feeds.Remove(ctx, timeline.Outbox(1), 8))
		require.NoError(t, s.Feeds.Drop(ctx, timeline.Outbox(3)))
		requireLatest(t, s, authors, 8, 7, 9, -1)
		require.NoError(t, s.Latest.Store(ctx, n, map[int64]int64{1: 3}))
		requireLatest(t, s, authors, 8, 7, 9, -1)
		life, err := rdb.PTTL(ctx, latestKey(1)).Result()
		require.NoError(t, err)
		require.Positive(t, life)
	})
}

// Ids that were read from SQL are not stored if Redis has since lost ids that were added.
func TestLatestOfAnotherEpochIsNotStored(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		late := requireLatest(t, s, []int64{1}, -1)
		require.NoError(t, s.Feeds.Add(ctx, timeline.Outbox(1), 6)) // SQL had 5
		wipe(t, rdb)
		require.NoError(t, s.Latest.Store(ctx, late, map[int64]int64{1: 5}))
		again := requireLatest(t, s, []int64{1}, -1)
		require.NoError(t, s.Latest.Store(ctx, late, map[int64]int64{1: 5}))
		requireLatest(t, s, []int64{1}, -1)
		require.NoError(t, s.Latest.Store(ctx, again, map[int64]int64{1: 6}))
		requireLatest(t, s, []int64{1}, 6)
	})
}

func TestLatestOfManyAuthors(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		s, _ := newStore(t, rdb)
		authors, want, stored := make([]int64, 40_000), make([]int64, 40_000), map[int64]int64{}
		for i := range authors {
			authors[i], want[i] = int64(i)*4096+1, int64(i)
			stored[authors[i]] = want[i]
		}
		n, err := s.Latest.IDs(t.Context(), authors)
		require.NoError(t, err)
		require.NoError(t, s.Latest.Store(t.Context(), n, stored))
		requireLatest(t, s, authors, want...)
		requireLatest(t, s, nil, []int64{}...)
	})
}
