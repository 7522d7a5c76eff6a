-- Purpose: trims a feed that is past its cap. If the feed is not intact, it deletes the
--          coverage, and gives the set an expiry if it has none.
-- ARGV:    1 cap, 2 slack, 3 life of a set without coverage (ms)
-- Returns: the number of ids removed; -1 when it cleaned up after a lost feed; else 0
-- Cost:    O(1) when there is nothing to do, else O(log size + cut)

if not intact() then
  local found = redis.call('DEL', meta)
  if redis.call('PTTL', set) == -1 then
    found = redis.call('PEXPIRE', set, ARGV[3])
  end
  return -found
end
return trim(tonumber(ARGV[1]), tonumber(ARGV[2]))
