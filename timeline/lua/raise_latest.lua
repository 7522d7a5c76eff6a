-- Purpose: stores the id of a post that is being added as its author's latest, unless the
--          hash is missing or has the same or a newer id. A '-' before the id says that
--          earlier posts are unknown (latest.go). It deletes a hash of another incarnation.
-- KEYS:    1 latest ids of a shard of authors (hash)
-- ARGV:    1 author, 2 id
-- Returns: 1 raised, 0 not
-- Cost:    O(1), and O(authors) of what is deleted

local epoch, current = redis.call('HGET', KEYS[1], 'e'), incarnation()
if not epoch or string.sub(epoch, 1, #current) ~= current then
  redis.call('DEL', KEYS[1])
  return 0
end
local have = redis.call('HGET', KEYS[1], ARGV[1])
if have and math.abs(tonumber(have)) >= tonumber(ARGV[2]) then
  return 0
end
local known = have and have:sub(1, 1) ~= '-'
redis.call('HSET', KEYS[1], ARGV[1], (known and '' or '-') .. ARGV[2])
return 1
