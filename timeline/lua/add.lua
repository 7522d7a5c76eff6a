-- Purpose: adds ids to a feed that is ready or being built, and trims it.
-- ARGV:    1 floor of the ids added ('0': none), 2 cap, 3 slack, 4 life of
--          coverage, 5 life of set (ms; '0': unchanged), 6.. ids
-- Returns: 1 added, 0 the feed is missing
-- Cost:    O(n log size)

if not changeable() then
  return 0
end
local bound = tonumber(redis.call('HGET', meta, 'bound') or '0')
for i = 6, bound > 0 and #ARGV or 0 do
  if tonumber(ARGV[i]) <= bound and not redis.call('ZSCORE', set, ARGV[i]) then
    redis.call('HINCRBY', meta, 'passed', 1)
  end
end
put(6)
raise_floor(ARGV[1])
trim(tonumber(ARGV[2]), tonumber(ARGV[3]))
if ARGV[4] ~= '0' then
  expire(ARGV[4], ARGV[5])
end
return 1
