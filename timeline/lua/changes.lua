-- Purpose: where the journal of a feed stands, and what it noted since a position.
-- ARGV:    1 epoch, 2 position, 3 cap of the journal
-- Returns: {} when the feed is missing; else {epoch, position, whole, {ids}}:
--          whole is 1 when the ids are all that was noted since, those removed
--          with a minus sign, oldest first; otherwise it is 0
-- Cost:    O(ids returned)

local have = redis.call('HMGET', meta, 'epoch', 'pos', 'kept')
if not have[1] then
  return {}
end
local pos, kept = tonumber(have[2] or '0'), tonumber(have[3] or '0')
local since = tonumber(ARGV[2])
if have[1] ~= ARGV[1] or since < kept or since > pos then
  return { have[1], pos, 0, {} }
end
return { have[1], pos, 1, notes(since, tonumber(ARGV[3])) }
