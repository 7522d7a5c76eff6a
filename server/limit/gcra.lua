-- gcra.lua: one token bucket, kept as the moment at which it would be full again.
-- KEYS[1]  the bucket
-- ARGV[1]  microseconds in which one token comes back
-- ARGV[2]  how many tokens the bucket holds
-- ARGV[3]  how many tokens this call takes, at most ARGV[2]
-- Returns 0 when the tokens were taken, else the microseconds until they can be.
-- Cost: constant, one key. The clock is the server's, so every process agrees.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval = tonumber(ARGV[1])
local full = tonumber(redis.call('GET', KEYS[1]) or now)
if full < now then
  full = now
end
local after = full + interval * tonumber(ARGV[3])
local wait = after - now - interval * tonumber(ARGV[2])
if wait > 0 then
  return wait
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return 0
