-- Adds jobs to the stream of a pool, except the jobs that the stream already has.
--
-- KEYS[1]  stream of the pool
-- KEYS[2]  set of the ids of all jobs in the stream, delivered ones included
-- ARGV     four for each job: id, kind, payload, time of enqueueing (Unix, in us);
--          if the kind is empty, the worker that gets the job reads its row
-- Returns  how many jobs were added. Cost: O(1) per job.

-- If the stream is gone (evicted, deleted), the set is out of date.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
end

local added = 0
for i = 1, #ARGV, 4 do
  if redis.call('SADD', KEYS[2], ARGV[i]) == 1 then
    if ARGV[i + 1] == '' then
      redis.call('XADD', KEYS[1], '*', 'id', ARGV[i])
    else
      redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'kind', ARGV[i + 1],
        'payload', ARGV[i + 2], 'at', ARGV[i + 3])
    end
    added = added + 1
  end
end
return added
