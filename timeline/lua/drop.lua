-- Purpose: makes a feed missing, unless another build has begun since.
-- ARGV:    1 epoch of the coverage to drop
-- Returns: 1
-- Cost:    O(size)

if redis.call('HGET', meta, 'epoch') == ARGV[1] then
  redis.call('DEL', meta, set)
end
return 1
