-- Purpose: adds what a builder read and makes the feed ready, provided that the
--          build is still its own and nothing was removed since it read SQL.
-- ARGV:    1 epoch, 2 generation that the builder knows, 3 floor of what it read,
--          4 cap, 5 life of coverage, 6 life of set (ms), 7 now (Unix ms), 8.. ids
-- Returns: {'done'}, also when this build was finished before;
--          {'removed', generation} when the builder must read SQL again;
--          {'lost'} when the build is no longer its own
-- Cost:    O(n log size)

if not intact() then
  return { 'lost' }
end
local have = redis.call('HMGET', meta, 'epoch', 'state', 'gen')
local epoch, state, generation = have[1], have[2], have[3]
if epoch ~= ARGV[1] then
  return { 'lost' }
end
if state == 'ready' then
  return { 'done' }
end
if generation ~= ARGV[2] then
  redis.call('HSET', meta, 'started', ARGV[7])
  return { 'removed', generation }
end
sink()
put(8)
cut() -- what SQL has below the floor has not been pushed there
raise_floor(ARGV[3])
trim(tonumber(ARGV[4]), 0)
redis.call('HSET', meta, 'state', 'ready')
expire(ARGV[5], ARGV[6])
return { 'done' }
