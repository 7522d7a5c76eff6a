-- Purpose: coverage of a feed, and the number of its ids above one.
-- ARGV:    1 id above which ids are counted ('0': all)
-- Returns: {} when missing; else {state, epoch, floor, count}
-- Cost:    O(log size); O(size) in the compact encoding

if not intact() then
  return {}
end
local cover = redis.call('HMGET', meta, 'state', 'epoch', 'floor')
local count = 0
if cover[1] == 'ready' then
  count = redis.call('ZCOUNT', set, '-inf', top(ARGV[1], cover[3]))
end
return { cover[1], cover[2], cover[3], count }
