-- Purpose: adds what a builder read and makes the feed ready, provided that the
--          build is still its own and nothing was removed since it looked.
-- ARGV:    1 epoch, 2 gen the builder saw, 3 floor of what it read, 4 cap,
--          5 life of coverage, 6 life of set (ms), 7 now (Unix ms), 8.. ids
-- Returns: {'done'}, also when this build was finished before;
--          {'removed', gen} when the builder must look again;
--          {'lost'} when the build is no longer its own
-- Cost:    O(n log size)

if not intact() then
  return { 'lost' }
end
local have = redis.call('HMGET', meta, 'epoch', 'state', 'gen')
if have[1] ~= ARGV[1] then
  return { 'lost' }
end
if have[2] == 'ready' then
  return { 'done' }
end
if have[3] ~= ARGV[2] then
  redis.call('HSET', meta, 'started', ARGV[7])
  return { 'removed', have[3] }
end
put(8)
raise(ARGV[3])
trim(tonumber(ARGV[4]), 0)
redis.call('HSET', meta, 'state', 'ready')
expire(ARGV[5], ARGV[6])
return { 'done' }
