-- Takes entries of jobs out of a pool's stream, so that the jobs can be pushed again. A
-- job stays known that may be in the stream still: by the entry that its heir has, or, if
-- its entries were gone before, by another one.
--
-- KEYS[1]  stream of the pool
-- KEYS[2]  set of the ids of all jobs in the stream
-- ARGV[1]  consumer group
-- ARGV...  per job its id, the entry of its heir or '', how many entries follow, and these
-- Returns  1. Cost: O(1) per entry.

local i = 2
while i <= #ARGV do
  local heir = ARGV[i + 1]
  local last = i + 2 + ARGV[i + 2]
  local there = 0
  for entry = i + 3, last do
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[entry])
    there = there + redis.call('XDEL', KEYS[1], ARGV[entry])
  end
  if there > 0 and (heir == '' or #redis.call('XRANGE', KEYS[1], heir, heir) == 0) then
    redis.call('SREM', KEYS[2], ARGV[i])
  end
  i = last + 1
end
return 1
