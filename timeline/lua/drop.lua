-- Purpose: makes a feed missing, unless it has been begun anew since.
-- ARGV:    1 the epoch that its coverage had
-- Returns: 1
-- Cost:    O(size)

if redis.call('HGET', meta, 'epoch') == ARGV[1] then
  redis.call('DEL', meta, set)
end
return 1
