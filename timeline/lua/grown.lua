-- Purpose: returns how a feed has grown since somebody knew its ids in a span.
-- ARGV:    1, 2 oldest and newest id of the span ('0': it is empty), 3 id above which ids
--          are new, 4 how many of these are returned
-- Returns: {} when missing; else {state, epoch, floor, generation, {how many ids the span
--          has that are not below the floor, the oldest of them or '0', new ids...}}
-- Cost:    O(log size + ids returned), with a small set O(size)

if not intact() then
  return {}
end
local cover = redis.call('HMGET', meta, 'state', 'epoch', 'floor', 'gen')
local answer = { '0', '0' }
if cover[1] == 'ready' then
  if ARGV[2] ~= '0' then
    local lowest = '-' .. (tonumber(ARGV[1]) < tonumber(cover[3]) and cover[3] or ARGV[1])
    answer[1] = tostring(redis.call('ZCOUNT', set, '-' .. ARGV[2], lowest))
    answer[2] = redis.call('ZREVRANGEBYSCORE', set, lowest, '-' .. ARGV[2], 'LIMIT', 0, 1)[1] or '0'
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', top(ARGV[3], cover[3]), 'LIMIT', 0, ARGV[4])) do
    answer[#answer + 1] = id
  end
end
return { cover[1], cover[2], cover[3], cover[4], answer }
