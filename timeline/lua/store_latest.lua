-- Purpose: stores the latest ids of authors as read from SQL. It keeps ids that are newer.
-- KEYS:    1 latest ids of a shard of authors (hash)
-- ARGV:    1 epoch of the hash when SQL was read, 2 author, 3 id, and so on
-- Returns: 1 stored, 0 the hash has another epoch
-- Cost:    O(authors)

if redis.call('HGET', KEYS[1], 'e') ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  local id = ARGV[i + 1]
  local have = redis.call('HGET', KEYS[1], ARGV[i])
  if have and math.abs(tonumber(have)) > tonumber(id) then
    id = have:gsub('^-', '')
  end
  redis.call('HSET', KEYS[1], ARGV[i], id)
end
return 1
