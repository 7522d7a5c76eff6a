-- Purpose: returns the fences of an author, and whether a watch is unbroken.
-- KEYS:    1 the author's fences (sorted set)
-- ARGV:    1 lowest score (Unix s), 2 the watch
-- Returns: {1 whole, 0 not; {members}}
-- Cost:    O(members)

local since = redis.call('ZSCORE', KEYS[1], ARGV[2] .. incarnation())
local whole = since and tonumber(since) >= tonumber(ARGV[1]) and 1 or 0
return { whole, redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf') }
