-- Purpose: trims a feed that is past its cap. Of a lost one it deletes the coverage, and
--          gives the set an end if pushes have made one without.
-- ARGV:    1 cap, 2 slack, 3 life of a set without coverage (ms)
-- Returns: how many ids went; -1 when it found remains of a lost feed to deal with
-- Cost:    O(1) when there is nothing to do, else O(log size + cut)

if not intact() then
  local found = redis.call('DEL', meta)
  if redis.call('PTTL', set) == -1 then
    found = redis.call('PEXPIRE', set, ARGV[3])
  end
  return -found
end
return trim(tonumber(ARGV[1]), tonumber(ARGV[2]))
