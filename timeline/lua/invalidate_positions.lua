-- Purpose: invalidates all earlier positions in the journal of a feed, once for a change
--          that is too large to add entry by entry.
-- ARGV:    1 the number of the change ('0': every call invalidates), 2 how many
--          characters of `changes` are kept
-- Returns: 1
-- Cost:    O(1)

if not changeable() then
  return 1
end
if ARGV[1] ~= '0' then
  local done = redis.call('HGET', meta, 'changes') or ' '
  if done:find(' ' .. ARGV[1] .. ' ', 1, true) then
    return 1
  end
  done = done .. ARGV[1] .. ' '
  redis.call('HSET', meta, 'changes', done:sub(-tonumber(ARGV[2])))
end
invalidate_positions()
return 1
