package timeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
	"tideline/timeline"
)

// InboxSlot returns the same slot as Redis.
func TestInboxSlot(t *testing.T) {
	t.Parallel()
	addrs := strings.Split(strings.TrimPrefix(storagetest.ClusterURL(t), "redis://"), ",")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	for user := int64(1); user < 1<<52; user = user*7 + 3 {
		slot, err := rdb.ClusterKeySlot(t.Context(), fmt.Sprintf("tl:{i%d}:z", user)).Result()
		require.NoError(t, err)
		require.EqualValues(t, slot, timeline.InboxSlot(user))
	}
}
