-- Purpose: returns the latest ids of authors. It begins the hash anew when it was lost,
--          or begun in another incarnation.
-- KEYS:    1 latest ids of a shard of authors (hash)
-- ARGV:    1 random end of the epoch that may begin, 2 life of the hash (ms), 3.. authors
-- Returns: {epoch, {ids}}
-- Cost:    O(authors)

local here = incarnation()
local epoch = redis.call('HGET', KEYS[1], 'e')
if not epoch or string.sub(epoch, 1, #here) ~= here then
  epoch = here .. ARGV[1]
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'e', epoch)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return { epoch, redis.call('HMGET', KEYS[1], unpack(ARGV, 3)) }
