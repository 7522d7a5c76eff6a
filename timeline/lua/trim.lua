-- Purpose: trims a feed that is past its cap, and deletes what is left of a lost one.
-- ARGV:    1 cap, 2 slack
-- Returns: how many ids went; -1 when remains of a lost feed were deleted
-- Cost:    O(1) when there is nothing to do, else O(log size + cut)

if not intact() then
  return redis.call('DEL', meta, set) > 0 and -1 or 0
end
return trim(tonumber(ARGV[1]), tonumber(ARGV[2]))
