-- Purpose: extends the life of a topic's record, or begins the record, and returns what
--          was recorded since a position.
-- KEYS:    1 the record (hash): epoch, redis (the incarnation in which it was begun), pos
--          (the number of changes ever), kept (changes up to this one are gone or cannot be
--          told), j<n> (the change whose number is n modulo the cap)
-- ARGV:    1 epoch of a new record, 2 its life (ms), 3 cap of the record, 4 epoch and
--          5 number of the last change that the caller knows
-- Returns: {epoch, pos, whole, {changes}}: whole is 1 when these are all changes since,
--          oldest first; otherwise it is 0
-- Cost:    O(changes returned)

local have = redis.call('HMGET', KEYS[1], 'epoch', 'pos', 'kept', 'redis')
if not have[1] or have[4] ~= incarnation() then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'pos', '0', 'kept', '0', 'redis', incarnation())
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { ARGV[1], 0, 0, {} }
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local pos, since, cap = tonumber(have[2]), tonumber(ARGV[5]), tonumber(ARGV[3])
if have[1] ~= ARGV[4] or since < tonumber(have[3]) or since > pos then
  return { have[1], pos, 0, {} }
end
local fields = {}
for n = since + 1, pos do
  fields[#fields + 1] = 'j' .. n % cap
end
if #fields == 0 then
  return { have[1], pos, 1, {} }
end
return { have[1], pos, 1, redis.call('HMGET', KEYS[1], unpack(fields)) }
