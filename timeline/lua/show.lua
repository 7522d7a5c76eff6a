-- Purpose: puts ids that a reader has read in SQL, and is about to show, into a feed
--          that is ready or being built, provided that nothing was removed from the
--          feed since before the reader read SQL.
-- ARGV:    1 epoch, 2 generation of the feed before SQL was read, 3 cap, 4 slack,
--          5 how many characters of `early` are kept, 6.. ids
-- Returns: {} when they are there, or the feed is missing; {epoch, generation} when
--          the reader must read SQL again
-- Cost:    O(n log size)

if not changeable() then
  return {}
end
local have = redis.call('HMGET', meta, 'epoch', 'gen', 'state', 'early', 'floor')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] then
  return { have[1], have[2] }
end
local early, floor = have[4] or ' ', tonumber(have[5])
for i = 6, #ARGV do
  -- Below the floor later reads look in SQL, too.
  if tonumber(ARGV[i]) >= floor and redis.call('ZADD', set, '-' .. ARGV[i], ARGV[i]) == 1 and have[3] == 'ready' then
    early = early .. ARGV[i] .. ' '
  end
end
if early ~= (have[4] or ' ') then
  redis.call('HSET', meta, 'early', early:sub(-tonumber(ARGV[5])))
end
trim(tonumber(ARGV[3]), tonumber(ARGV[4]))
return {}
