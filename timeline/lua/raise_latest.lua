-- Purpose: raises the latest id of an author to a post that is being added, if the
--          hash exists and has none as new.
-- KEYS:    1 latest ids of a shard of authors (hash)
-- ARGV:    1 author, 2 id
-- Returns: 1 raised, 0 not
-- Cost:    O(1)

if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local have = redis.call('HGET', KEYS[1], ARGV[1])
if have and math.abs(tonumber(have)) >= tonumber(ARGV[2]) then
  return 0
end
local known = have and have:sub(1, 1) ~= '-'
redis.call('HSET', KEYS[1], ARGV[1], (known and '' or '-') .. ARGV[2])
return 1
