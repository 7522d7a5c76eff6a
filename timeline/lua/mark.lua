-- Purpose: adds a fence, or a watch, to the fences of an author, and removes those that
--          have expired. A fence is a viewer whose relation to the author changed lately. A
--          watch is a running fan-out that must notice if fences are lost. Its member ends
--          with the incarnation, so in another incarnation it is not found.
-- KEYS:    1 the author's fences (sorted set)
-- ARGV:    1 member, 2 now (Unix s), 3 '(' and a score: those below the score have
--          expired, 4 life of the set (s), 5 '1': the member is a watch
-- Returns: 1
-- Cost:    O(log fences + expired)

local member = ARGV[5] == '1' and ARGV[1] .. incarnation() or ARGV[1]
redis.call('ZADD', KEYS[1], ARGV[2], member)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
return redis.call('EXPIRE', KEYS[1], ARGV[4])
