-- Purpose: tells whether something came to an outbox at or below an id since the last
--          time. From now on the outbox counts what does.
-- ARGV:    1 the id, 2 the id that the range of the count begins above
-- Returns: {state, epoch, how many ids came at or below such an id, how many ids the feed
--          has in the range}; {} when the feed is missing
-- Cost:    O(log size)

if not intact() then
  return {}
end
local have = redis.call('HMGET', meta, 'state', 'epoch', 'passed', 'bound')
if tonumber(ARGV[1]) > tonumber(have[4] or '0') then
  redis.call('HSET', meta, 'bound', ARGV[1])
end
return { have[1], have[2], have[3] or '0', tostring(redis.call('ZCOUNT', set, '-' .. ARGV[1], '(-' .. ARGV[2])) }
