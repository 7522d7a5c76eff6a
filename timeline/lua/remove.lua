-- Purpose: removes ids from a feed, and makes a current builder read SQL again. It adds
--          them to the journal, even if the feed did not have them: a reader may know
--          them from SQL.
-- ARGV:    1 cap of the journal ('0': no entries; '-1': no entries, but if the feed had
--          any of the ids, all earlier positions become invalid), 2 prefix of the
--          entries, see append_journal, 3.. ids
-- Returns: 1 done, 0 the feed is missing
-- Cost:    O(n log size)

if not changeable() then
  return 0
end
local removed = 0
for i = 3, #ARGV, 1000 do
  removed = removed + redis.call('ZREM', set, unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local cap = tonumber(ARGV[1])
for i = 3, cap > 0 and #ARGV or 0 do
  append_journal(ARGV[2] .. ARGV[i], cap)
end
if cap < 0 and removed > 0 then
  invalidate_positions()
end
redis.call('HINCRBY', meta, 'gen', 1)
return 1
