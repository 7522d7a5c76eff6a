-- Purpose: begins a build, unless the feed is ready or another builder is at work. If that
--          builder is stale, the caller continues its build, with the same epoch, journal
--          and pushed ids, and reads SQL again, as after a removal.
-- ARGV:    1 epoch of this build, 2 now, 3 a builder that was last heard of at or before
--          this time is stale (both Unix ms), 4 life of coverage, 5 life of set (ms),
--          6 the current incarnation of the user's shard of active users; '' for an outbox
-- Returns: {epoch, generation, end of the journal} when the build has begun, also by an
--          earlier call; {} otherwise
-- Cost:    O(size) of what is deleted

if intact() then
  local have = redis.call('HMGET', meta, 'epoch', 'state', 'started', 'gen', 'builder', 'activity', 'pos')
  if have[1] == ARGV[1] or have[5] == ARGV[1] then
    return { have[1], have[4], have[7] or '0' }
  end
  if have[2] == 'ready' or tonumber(have[3]) > tonumber(ARGV[3]) then
    return {}
  end
  if have[6] == ARGV[6] then
    redis.call('HSET', meta, 'started', ARGV[2], 'builder', ARGV[1])
    expire(ARGV[4], ARGV[5])
    return { have[1], have[4], have[7] or '0' }
  end
end
redis.call('DEL', meta, set)
redis.call('HSET', meta, 'epoch', ARGV[1], 'state', 'building', 'floor', '0',
  'gen', '0', 'started', ARGV[2], 'redis', incarnation(), 'activity', ARGV[6])
redis.call('ZADD', set, '0', '0')
expire(ARGV[4], ARGV[5])
return { ARGV[1], '0', '0' }
