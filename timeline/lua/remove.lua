-- Purpose: takes ids out of a feed, and makes a builder at work look again. The
--          journal notes them, held or not: a reader may know them from SQL.
-- ARGV:    1 cap of the journal ('0': no notes; '-1': no notes, but if any id
--          was held, all earlier positions in the journal are worthless), 2.. ids
-- Returns: 1 done, 0 the feed is missing
-- Cost:    O(n log size)

if redis.call('EXISTS', meta) == 0 then
  return 0
end
local held = 0
for i = 2, #ARGV, 1000 do
  held = held + redis.call('ZREM', set, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local cap = tonumber(ARGV[1])
for i = 2, cap > 0 and #ARGV or 0 do
  note('-' .. ARGV[i], cap)
end
if cap < 0 and held > 0 then
  redis.call('HSET', meta, 'kept', redis.call('HINCRBY', meta, 'pos', 1))
end
redis.call('HINCRBY', meta, 'gen', 1)
return 1
