-- Purpose: returns the epoch of the latest ids of a shard. If the hash was lost, or begun in
--          another incarnation, it creates a new one.
-- KEYS:    1 latest ids of a shard of authors (hash)
-- ARGV:    1 random end of a new epoch, 2 life of the hash (ms)
-- Returns: epoch
-- Cost:    O(1), and O(authors) of what is deleted

local current = incarnation()
local epoch = redis.call('HGET', KEYS[1], 'e')
if not epoch or string.sub(epoch, 1, #current) ~= current then
  epoch = current .. ARGV[1]
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'e', epoch)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return epoch
