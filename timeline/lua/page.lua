-- Purpose: returns the coverage of a feed, and ids of it when it is ready.
-- ARGV:    1 lowest score ('-inf' or '(-<id>'), 2 id above which ids are
--          wanted ('0': all), 3 how many, 4 '1' for oldest first
-- Returns: {} when missing; else {state, epoch, floor, generation, {ids}}
-- Cost:    O(log size + ids returned)

if not intact() then
  return {}
end
local cover = redis.call('HMGET', meta, 'state', 'epoch', 'floor', 'gen')
local ids = {}
if cover[1] == 'ready' then
  local greatest = top(ARGV[2], cover[3])
  if ARGV[4] == '1' then
    ids = redis.call('ZREVRANGEBYSCORE', set, greatest, ARGV[1], 'LIMIT', 0, ARGV[3])
  else
    ids = redis.call('ZRANGEBYSCORE', set, ARGV[1], greatest, 'LIMIT', 0, ARGV[3])
  end
end
return { cover[1], cover[2], cover[3], cover[4], ids }
