-- Creates a pool's stream and its consumer group, which reads from the
-- beginning: what was pushed before the first reader came is not skipped.
--
-- KEYS[1]  stream of the pool
-- KEYS[2]  set of the ids of all jobs in the stream
-- ARGV[1]  consumer group
-- Returns  OK, or the error BUSYGROUP when it exists. Cost: O(1).

-- Without the stream (evicted, deleted) the set means nothing.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
end
return redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
