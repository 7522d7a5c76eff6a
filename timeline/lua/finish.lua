-- Purpose: adds the ids that a builder read and makes the feed ready, if the build still
--          belongs to the builder and nothing was removed since it read SQL.
-- ARGV:    1 epoch, 2 generation that the builder knows, 3 floor of the ids,
--          4 cap, 5 life of coverage, 6 life of set (ms), 7 now (Unix ms), 8.. ids
-- Returns: {'done'}, also if this build was finished before;
--          {'removed', generation} when the builder must read SQL again;
--          {'lost'} when the build no longer belongs to the builder
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
cut() -- ids from SQL below the floor were not pushed there
raise_floor(ARGV[3])
trim(tonumber(ARGV[4]), 0)
redis.call('HSET', meta, 'state', 'ready')
expire(ARGV[5], ARGV[6])
return { 'done' }
