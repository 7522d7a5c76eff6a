-- Removes entries of jobs from the stream of a pool, so that the jobs can be pushed again.
-- The id of a job stays in the set if the job may still be in the stream: if the entry of a
-- successor exists, or if none of the given entries existed.
--
-- KEYS[1]  stream of the pool
-- KEYS[2]  set of the ids of all jobs in the stream
-- ARGV[1]  consumer group
-- ARGV...  for each job: its id, the entry of its successor or '', the number of entries
--          to remove, and these entries
-- Returns  1. Cost: O(1) per entry.

local i = 2
while i <= #ARGV do
  local successor = ARGV[i + 1]
  local last = i + 2 + ARGV[i + 2]
  local there = 0
  for entry = i + 3, last do
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[entry])
    there = there + redis.call('XDEL', KEYS[1], ARGV[entry])
  end
  if there > 0 and (successor == '' or #redis.call('XRANGE', KEYS[1], successor, successor) == 0) then
    redis.call('SREM', KEYS[2], ARGV[i])
  end
  i = last + 1
end
return 1
