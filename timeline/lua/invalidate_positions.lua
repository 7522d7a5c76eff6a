-- Purpose: makes every earlier position in the journal worthless: more changed
--          than is noted one by one.
-- Returns: 1
-- Cost:    O(1)

if redis.call('EXISTS', meta) == 1 then
  redis.call('HSET', meta, 'kept', redis.call('HINCRBY', meta, 'pos', 1))
end
return 1
