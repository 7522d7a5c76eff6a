-- Purpose: moves the deadline of an active user. A user who is not active does not change.
-- KEYS:    1 the shard of active users (sorted set)
-- ARGV:    1 user, 2 now, 3 new deadline (Unix ms)
-- Returns: {1 the user was active, 0 not; the incarnation of the shard}
-- Cost:    O(log users in the shard)

local deadline, active = redis.call('ZSCORE', KEYS[1], ARGV[1]), 0
if deadline and tonumber(deadline) > tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], 'GT', ARGV[3], ARGV[1])
  active = 1
end
return { active, incarnation() }
