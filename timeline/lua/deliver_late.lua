-- Purpose: pushes a late post into a feed that has coverage, and adds it to the
--          journal.
-- ARGV:    1 id, 2 '1': push it, '0': readers find it elsewhere, 3 '1': add it to the
--          journal even if the feed has it already, because an earlier attempt may have
--          sent no event; '2': the user had it before, so add it only if it was removed,
--          4 cap of the journal
-- Returns: 1 added to the journal; 0 the feed is missing, the post had arrived (unless a
--          reader put it there early), or the journal says that it arrived and was not
--          removed since
-- Cost:    O(log size + cap)

if not changeable() then
  return 0
end
local id, cap = ARGV[1], tonumber(ARGV[4])
local new = ARGV[2] ~= '1' or redis.call('ZADD', set, '-' .. id, id) == 1 or
  (redis.call('HGET', meta, 'early') or ''):find(' ' .. id .. ' ', 1, true) ~= nil
if not (new or ARGV[3] == '1') then
  return 0
end
local last
for _, entry in ipairs(read_journal(0, cap)) do
  if entry == id or entry == '-' .. id or entry == '=' .. id then
    last = entry
  end
end
if last == id then
  return 0
end
if ARGV[3] == '2' and not last then
  -- A post that is pulled, below the floor, or not yet built was never in the set.
  local have = redis.call('HMGET', meta, 'state', 'floor')
  if ARGV[2] ~= '1' or have[1] ~= 'ready' or tonumber(id) < tonumber(have[2]) then
    return 0
  end
end
append_journal(id, cap)
return 1
