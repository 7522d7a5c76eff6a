-- Purpose: pushes a post that comes late into a feed that has coverage, and notes
--          it in the journal.
-- ARGV:    1 id, 2 '1': push it, '0': readers find it elsewhere, 3 '1': note it
--          even if the feed holds it: its arrival may not have been told, 4 cap
--          of the journal
-- Returns: 1 noted, 0 it had arrived, or was noted and not taken out since, or the feed is missing
-- Cost:    O(log size + cap)

if not intact() then
  return 0
end
local new = ARGV[2] ~= '1' or redis.call('ZADD', set, '-' .. ARGV[1], ARGV[1]) == 1
if not (new or ARGV[3] == '1') then
  return 0
end
local last
for _, noted in ipairs(notes(0, tonumber(ARGV[4]))) do
  if noted == ARGV[1] or noted == '-' .. ARGV[1] then
    last = noted
  end
end
if last == ARGV[1] then
  return 0
end
note(ARGV[1], tonumber(ARGV[4]))
return 1
