-- Purpose: removes ids from a feed that is ready or being built, and adds others, in one
--          step.
-- ARGV:    1 floor of the added ids ('0': none), 2 cap, 3 slack, 4 cap of the journal,
--          5 '1': if the feed changes, all earlier positions in the journal become
--          invalid, 6 how many ids to remove, 7.. these ids, then the ids to add
-- Returns: 1 done, 0 the feed is missing
-- Cost:    O(n log size)

if not changeable() then
  return 0
end
local last, changed = 6 + tonumber(ARGV[6]), 0
for i = 7, last do
  changed = changed + redis.call('ZREM', set, ARGV[i])
  append_journal('-' .. ARGV[i], tonumber(ARGV[4]))
end
if last > 6 then
  redis.call('HINCRBY', meta, 'gen', 1)
end
changed = changed + put(last + 1)
raise_floor(ARGV[1])
trim(tonumber(ARGV[2]), tonumber(ARGV[3]))
if ARGV[5] == '1' and changed > 0 then
  invalidate_positions()
end
return 1
