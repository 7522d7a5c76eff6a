-- Purpose: raises the bound of an outbox to an id, never lowers it, and returns how many
--          ids arrived at or below the bound of their time. add.lua counts them.
-- ARGV:    1 the id, the upper end of the range, 2 the id above which the range begins
-- Returns: {state, epoch, how many ids arrived at or below the bound of their time, how
--          many ids the feed has in the range}; {} when the feed is missing
-- Cost:    O(log size)

if not intact() then
  return {}
end
local have = redis.call('HMGET', meta, 'state', 'epoch', 'passed', 'bound')
if tonumber(ARGV[1]) > tonumber(have[4] or '0') then
  redis.call('HSET', meta, 'bound', ARGV[1])
end
return { have[1], have[2], have[3] or '0', tostring(redis.call('ZCOUNT', set, '-' .. ARGV[1], '(-' .. ARGV[2])) }
