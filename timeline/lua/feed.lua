-- Purpose: what every script on a feed begins with.
-- KEYS:    1 the feed's coverage (hash), 2 its ids (sorted set)
--
-- The set always holds the end mark, member 0 with score 0, which sorts last
-- as scores are negated ids. A set without it has lost ids.

local meta, set = KEYS[1], KEYS[2]

-- intact tells whether neither key of the feed has been lost. O(1).
local function intact()
  local last = redis.call('ZRANGE', set, -1, -1)
  return last[1] == '0' and redis.call('EXISTS', meta) == 1
end

-- put adds the ids ARGV[first] and following. O(n log size).
local function put(first)
  for i = first, #ARGV, 400 do
    local args = {}
    for j = i, math.min(i + 399, #ARGV) do
      args[#args + 1] = '-' .. ARGV[j]
      args[#args + 1] = ARGV[j]
    end
    redis.call('ZADD', set, unpack(args))
  end
end

-- raise lifts the floor to the id given, and never lowers it.
local function raise(floor)
  if tonumber(floor) > tonumber(redis.call('HGET', meta, 'floor')) then
    redis.call('HSET', meta, 'floor', floor)
  end
end

-- trim keeps the newest cap ids when there are more than cap + slack, and says
-- how many went. Any below the floor are the oldest, so they go first.
-- O(log size + cut).
local function trim(cap, slack)
  if redis.call('ZCARD', set) - 1 <= cap + slack then
    return 0
  end
  local cut = redis.call('ZREMRANGEBYRANK', set, cap, -2)
  raise(redis.call('ZRANGE', set, cap - 1, cap - 1)[1])
  return cut
end

-- note appends to the journal: an id that arrived, or '-' and one that was
-- removed. The journal is a ring in the coverage, so that neither is lost without
-- the other: field j<position modulo cap>, the newest cap of them; what is at or
-- before position 'kept' is forgotten. O(1).
local function note(what, cap)
  local pos = redis.call('HINCRBY', meta, 'pos', 1)
  redis.call('HSET', meta, 'j' .. pos % cap, what)
  if pos - cap > tonumber(redis.call('HGET', meta, 'kept') or '0') then
    redis.call('HSET', meta, 'kept', pos - cap)
  end
end

-- notes returns what the journal has after a position, as far as it is kept,
-- oldest first. O(notes).
local function notes(since, cap)
  local have = redis.call('HMGET', meta, 'pos', 'kept')
  local fields = {}
  for p = math.max(since, tonumber(have[2] or '0')) + 1, tonumber(have[1] or '0') do
    fields[#fields + 1] = 'j' .. p % cap
  end
  if #fields == 0 then
    return {}
  end
  return redis.call('HMGET', meta, unpack(fields))
end

-- expire gives both keys their life in milliseconds.
local function expire(metaLife, setLife)
  redis.call('PEXPIRE', meta, metaLife)
  redis.call('PEXPIRE', set, setLife)
end

-- top is the greatest score of an id that is above `after` and not below the
-- floor; it excludes the end mark.
local function top(after, floor)
  if tonumber(after) >= tonumber(floor) then
    return after == '0' and '(0' or '(-' .. after
  end
  return '-' .. floor
end
