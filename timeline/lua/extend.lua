-- Purpose: prolongs the life of a feed, both keys or neither.
-- ARGV:    1 life of coverage, 2 life of set (ms)
-- Returns: {} when the feed is missing; else {epoch, end of the journal}
-- Cost:    O(1)

expire(ARGV[1], ARGV[2])
local have = redis.call('HMGET', meta, 'epoch', 'pos')
return have[1] and { have[1], tonumber(have[2] or '0') } or {}
