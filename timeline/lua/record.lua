-- Purpose: records a change of a topic, if anybody may watch it.
-- KEYS:    1 the record (hash), see watch.lua
-- ARGV:    1 the change; '': one that is not told, so that all earlier positions become
--          invalid, 2 cap of the record
-- Returns: {} when nobody watches; {'', 0} when Redis has lost what was recorded, so that
--          watchers must look; else {epoch, number of the change}
-- Cost:    O(1)

local have = redis.call('HMGET', KEYS[1], 'epoch', 'kept', 'redis')
if not have[1] then
  return {}
end
if have[3] ~= incarnation() then
  redis.call('DEL', KEYS[1])
  return { '', 0 }
end
local pos, cap = redis.call('HINCRBY', KEYS[1], 'pos', 1), tonumber(ARGV[2])
if ARGV[1] == '' then
  redis.call('HSET', KEYS[1], 'kept', pos)
else
  redis.call('HSET', KEYS[1], 'j' .. pos % cap, ARGV[1])
  if pos - cap > tonumber(have[2]) then
    redis.call('HSET', KEYS[1], 'kept', pos - cap)
  end
end
return { have[1], pos }
