-- Purpose: returns the coverage of a feed, and its ids if it is ready. If ARGV[5] is
--          given, it then settles the feed, in the same step: each id is returned,
--          counted below the floor, or arrives later.
-- ARGV:    1 lowest score ('-inf' or '(-<id>'), 2 id above which ids are returned
--          ('0': all), 3 how many, 4 '1' for oldest first; optional, for settle:
--          5 low, 6 how many ids to keep above it, 7 id
-- Returns: {} when missing; else {state, epoch, floor, generation, {ids}, settled}:
--          floor is the floor before settling
-- Cost:    O(log size + ids returned + cut)

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
local settled = {}
if ARGV[5] then
  settled = settle(ARGV[5], tonumber(ARGV[6]), ARGV[7])
end
return { cover[1], cover[2], cover[3], cover[4], ids, settled }
