-- Purpose: extends the life of both keys of a feed.
-- ARGV:    1 life of coverage, 2 life of set (ms), 3 '1': check whether the feed is
--          intact; '0': the page script that follows does
-- Returns: {} when the feed is missing; else {epoch, end of the journal, incarnation of
--          the activity in which the feed was begun}
-- Cost:    O(1)

if ARGV[3] == '1' and not changeable() then
  return {}
end
expire(ARGV[1], ARGV[2])
local have = redis.call('HMGET', meta, 'epoch', 'pos', 'activity')
return have[1] and { have[1], tonumber(have[2] or '0'), have[3] or '' } or {}
