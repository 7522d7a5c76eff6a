-- Purpose: ends a watch.
-- KEYS:    1 the author's fences (sorted set)
-- ARGV:    1 the watch
-- Returns: 1 ended, 0 there was none
-- Cost:    O(log fences)

return redis.call('ZREM', KEYS[1], ARGV[1] .. incarnation())
