package timeline_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
	"tideline/timeline"
)

func newestKey(author int64) string { return "tl:{n" + activeKey(author)[len("tl:{a"):] }

// newest asks for what is known and expects this of it.
func newest(t testing.TB, s *timeline.Store, authors []int64, want ...int64) timeline.LatestPosts {
	t.Helper()
	n, err := s.LatestPostIDs(t.Context(), authors)
	require.NoError(t, err)
	require.Equal(t, want, n.IDs)
	return n
}

func TestNewestIsNeverBelowTheOutbox(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		require.NoError(t, s.Add(ctx, timeline.Outbox(1), 5))
		exist, err := rdb.Exists(ctx, newestKey(1)).Result()
		require.NoError(t, err)
		require.Zero(t, exist, "nobody has asked")

		authors := []int64{1, 2, 3, 1 << 40}
		n := newest(t, s, authors, -1, -1, -1, -1)
		require.NoError(t, s.Add(ctx, timeline.Outbox(2), 7))
		newest(t, s, authors, -1, -1, -1, -1) // 7 may be an old one that comes late
		require.NoError(t, s.StoreLatest(ctx, n, map[int64]int64{1: 5, 2: 6, 3: 0}))
		newest(t, s, authors, 5, 7, 0, -1) // 7 came after SQL was read

		require.NoError(t, s.Add(ctx, timeline.Outbox(1), 8))
		require.NoError(t, s.Add(ctx, timeline.Outbox(1), 4))
		require.NoError(t, s.Add(ctx, timeline.Inbox(2), 99))
		build(t, s, timeline.Outbox(3), []int64{2, 9, 3}, 0)
		newest(t, s, authors, 8, 7, 9, -1)
		require.NoError(t, s.Remove(ctx, timeline.Outbox(1), 8))
		require.NoError(t, s.Drop(ctx, timeline.Outbox(3)))
		newest(t, s, authors, 8, 7, 9, -1)
		require.NoError(t, s.StoreLatest(ctx, n, map[int64]int64{1: 3}))
		newest(t, s, authors, 8, 7, 9, -1)
		life, err := rdb.PTTL(ctx, newestKey(1)).Result()
		require.NoError(t, err)
		require.Positive(t, life)
	})
}

// What was read from SQL before Redis forgot what was added is not stored.
func TestNewestOfAnotherLifeIsNotLearnt(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, _ bool) {
		s, _ := newStore(t, rdb)
		ctx := t.Context()
		late := newest(t, s, []int64{1}, -1)
		require.NoError(t, s.Add(ctx, timeline.Outbox(1), 6)) // SQL had 5
		wipe(t, rdb)
		require.NoError(t, s.StoreLatest(ctx, late, map[int64]int64{1: 5}))
		again := newest(t, s, []int64{1}, -1)
		require.NoError(t, s.StoreLatest(ctx, late, map[int64]int64{1: 5}))
		newest(t, s, []int64{1}, -1)
		require.NoError(t, s.StoreLatest(ctx, again, map[int64]int64{1: 6}))
		newest(t, s, []int64{1}, 6)
	})
}

func TestNewestOfManyAuthors(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redis.UniversalClient, _ bool) {
		s, _ := newStore(t, rdb)
		authors, want, learnt := make([]int64, 40_000), make([]int64, 40_000), map[int64]int64{}
		for i := range authors {
			authors[i], want[i] = int64(i)*4096+1, int64(i)
			learnt[authors[i]] = want[i]
		}
		n, err := s.LatestPostIDs(t.Context(), authors)
		require.NoError(t, err)
		require.NoError(t, s.StoreLatest(t.Context(), n, learnt))
		newest(t, s, authors, want...)
		newest(t, s, nil, []int64{}...)
	})
}
