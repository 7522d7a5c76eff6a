package lru

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLongestUnusedGoFirst(t *testing.T) {
	c := New[string, int](30)
	for i := range 3 {
		c.Put(strconv.Itoa(i), i, 10)
	}
	value, ok := c.Get("0")
	require.True(t, ok)
	require.Equal(t, 0, value)
	c.Put("3", 3, 10)
	_, ok = c.Get("1")
	require.False(t, ok, "0 was used after it")
	require.Len(t, c.byKey, 3)
	require.Equal(t, 3, c.order.Len())
	require.Equal(t, c.max, c.used)

	c.Put("3", 4, 10)
	value, _ = c.Get("3")
	require.Equal(t, 4, value, "it takes the place of the first value")
	require.Equal(t, c.max, c.used)
	c.Put("larger than all", 5, 31)
	require.Len(t, c.byKey, 3, "one that is too large drops no others")
	c.Put("3", 4, 31)
	require.False(t, c.Has("3"), "the earlier value is gone all the same")
	c.Put("as large as all", 6, 30)
	require.Len(t, c.byKey, 1)
	require.Equal(t, c.max, c.used)
	c.Remove("as large as all")
	c.Remove("what is not there")
	require.Zero(t, c.used)
	require.Zero(t, c.order.Len())
}

func TestBytesAreBounded(t *testing.T) {
	c := New[string, int](20_000)
	c.Put("in use", 0, 1200)
	for i := range 100 {
		c.Put(strconv.Itoa(i), i, 1000+i)
		_, ok := c.Get("in use")
		require.True(t, ok)
		require.LessOrEqual(t, c.used, c.max)
	}
	require.Equal(t, c.order.Len(), len(c.byKey))
	require.Greater(t, len(c.byKey), 10)
}
