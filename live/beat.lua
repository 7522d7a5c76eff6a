-- One heartbeat of a process, by the server's clock: those of the processes'
-- machines may differ, and a fast one must not drop the others.
-- KEYS[1] live:procs   ARGV[1] process   ARGV[2] life without a heartbeat, ms
-- Returns 1 if the process was known, 0 if it was not (new, dropped, or wiped).
-- Cost: one ZADD, and the removal of those that died since the last heartbeat.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[2])
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ttl))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if known then return 1 end
return 0
