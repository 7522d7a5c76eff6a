-- Purpose: notes an id of an author, if readers ask for those of the shard and
--          none as new is noted.
-- KEYS:    1 newest ids of a shard (hash)
-- ARGV:    1 author, 2 id
-- Returns: 1 noted, 0 not
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
