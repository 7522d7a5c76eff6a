-- Purpose: returns the end of a feed's journal, and its entries since a position.
-- ARGV:    1 epoch, 2 position, 3 cap of the journal
-- Returns: {} when the feed is missing; else {epoch, end, whole, {entries}}:
--          whole is 1 when these are all entries since the position, oldest first, in
--          the format of append_journal; otherwise it is 0
-- Cost:    O(entries returned)

local have = redis.call('HMGET', meta, 'epoch', 'pos', 'kept', 'redis')
if not have[1] or have[4] ~= incarnation() then
  return {}
end
local pos, kept = tonumber(have[2] or '0'), tonumber(have[3] or '0')
local since = tonumber(ARGV[2])
if have[1] ~= ARGV[1] or since < kept or since > pos then
  return { have[1], pos, 0, {} }
end
return { have[1], pos, 1, read_journal(since, tonumber(ARGV[3])) }
