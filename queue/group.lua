-- Creates the stream of a pool and its consumer group. The group reads from the
-- beginning, so it does not skip jobs that were pushed before the first reader.
--
-- KEYS[1]  stream of the pool
-- KEYS[2]  set of the ids of all jobs in the stream
-- ARGV[1]  consumer group
-- Returns  OK, or the error BUSYGROUP if the group exists. Cost: O(1).

-- If the stream is gone (evicted, deleted), the set is out of date.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
end
return redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
