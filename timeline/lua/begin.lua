-- Purpose: begins a build, unless the feed is ready or a builder was heard of recently. If
--          its builder is silent, the caller takes the build over, with the same epoch,
--          journal and ids, and reads SQL itself. If the incarnation of the active users has
--          changed, the build starts from nothing.
-- ARGV:    1 the epoch that the caller proposes, which also identifies the caller, 2 now,
--          3 a time: a builder last heard of at or before it is silent (both Unix ms),
--          4 life of coverage, 5 life of set (ms), 6 the current incarnation of the user's
--          shard of active users; '' for an outbox
-- Returns: {epoch, generation, end of the journal} if the build is the caller's, also if
--          this call is a repetition; {} otherwise
-- Cost:    O(size) of what is deleted

if intact() then
  local have = redis.call('HMGET', meta, 'epoch', 'state', 'started', 'gen', 'builder', 'activity', 'pos')
  local epoch, state, heard, builder, activity = have[1], have[2], have[3], have[5], have[6]
  local build = { epoch, have[4], have[7] or '0' }
  if epoch == ARGV[1] or builder == ARGV[1] then
    return build
  end
  if state == 'ready' or tonumber(heard) > tonumber(ARGV[3]) then
    return {}
  end
  if activity == ARGV[6] then
    redis.call('HSET', meta, 'started', ARGV[2], 'builder', ARGV[1])
    expire(ARGV[4], ARGV[5])
    return build
  end
end
redis.call('DEL', meta, set)
redis.call('HSET', meta, 'epoch', ARGV[1], 'state', 'building', 'floor', '0',
  'gen', '0', 'started', ARGV[2], 'redis', incarnation(), 'activity', ARGV[6])
redis.call('ZADD', set, '0', '0')
expire(ARGV[4], ARGV[5])
return { ARGV[1], '0', '0' }
