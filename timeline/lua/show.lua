-- Purpose: adds ids that a reader has read from SQL, and is about to show, to a feed that
--          is ready or being built, if nothing was removed from the feed since the reader
--          read its generation.
-- ARGV:    1 epoch, 2 generation of the feed before SQL was read, 3 cap, 4 slack,
--          5 how many characters of `early` are kept, 6.. ids
-- Returns: {} when the ids were added, or the feed is missing; {epoch, generation} when
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
  -- Later reads take ids below the floor from SQL.
  if tonumber(ARGV[i]) >= floor and redis.call('ZADD', set, '-' .. ARGV[i], ARGV[i]) == 1 and have[3] == 'ready' then
    early = early .. ARGV[i] .. ' '
  end
end
if early ~= (have[4] or ' ') then
  redis.call('HSET', meta, 'early', early:sub(-tonumber(ARGV[5])))
end
trim(tonumber(ARGV[3]), tonumber(ARGV[4]))
return {}
