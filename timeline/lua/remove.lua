-- Purpose: takes ids out of a feed, and makes a builder at work read SQL again. It
--          adds them to the journal: a reader may know them from SQL.
-- ARGV:    1 cap of the journal ('0': no entries), 2 '1': only ids that the feed had
--          become entries, 3.. ids
-- Returns: 1 done, 0 the feed is missing
-- Cost:    O(n log size)

if redis.call('EXISTS', meta) == 0 then
  return 0
end
local cap = tonumber(ARGV[1])
for i = 3, #ARGV do
  local had = redis.call('ZREM', set, ARGV[i]) == 1
  if cap > 0 and (had or ARGV[2] ~= '1') then
    append_journal('-' .. ARGV[i], cap)
  end
end
redis.call('HINCRBY', meta, 'gen', 1)
return 1
