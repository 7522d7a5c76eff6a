-- Purpose: has what the scripts on a feed share. script.go puts this file before each of
--          them, and incarnation.lua before it.
-- KEYS:    1 the feed's coverage: its state and journal (hash), 2 its ids (sorted set)
--
-- Fields of the hash:
--   epoch    differs from one build of the feed to the next
--   redis    the incarnation in which the feed was begun; in another one the feed
--            counts as missing
--   activity the incarnation of the user's shard of active users when the inbox was begun;
--            '' for an outbox
--   state    'building' or 'ready'
--   started  when the build began, or later when its builder was last heard of (Unix ms)
--   builder  the epoch that a builder proposed when it took over the build
--   floor    the id down to which the feed is complete ('0': to the beginning)
--   gen      the generation: the number of calls that removed ids, also ids that were not
--            there, or none. Its name must not change: during an upgrade, old and new
--            processes both increment it
--   pos      the end of the journal: the number of entries and invalidations ever
--   kept     positions before this one are invalid
--   early    ids that a reader added before their fan-out did, surrounded by spaces
--   changes  the numbers of the last changes that invalidated positions, surrounded by
--            spaces
--   under    how many ids arrived below the floor
--   bound    outboxes only: the highest id for which digest.lua was called
--   passed   outboxes only: how many ids arrived at or below the bound of their time
--   j<n>     the journal entry whose position is n modulo the cap of the journal
--
-- The set always holds the end mark, member 0 with score 0. It sorts last because
-- scores are negated ids. A set without it has lost ids.

local meta, set = KEYS[1], KEYS[2]

-- intact returns whether both keys of the feed exist and were begun in this
-- incarnation. O(1).
local function intact()
  local begun = redis.call('HGET', meta, 'redis')
  return begun and redis.call('ZRANGE', set, -1, -1)[1] == '0' and begun == incarnation()
end

-- changeable is intact for a script that changes the feed. A feed that is not intact
-- loses its coverage, because it lacks this change. The set stays: a push is a plain ZADD,
-- and would create a set without expiry. O(1).
local function changeable()
  if intact() then
    return true
  end
  redis.call('DEL', meta)
  return false
end

-- put adds the ids from ARGV[first] on, and returns how many are new.
-- O(n log size).
local function put(first)
  local new = 0
  for i = first, #ARGV, 400 do
    local args = {}
    for j = i, math.min(i + 399, #ARGV) do
      args[#args + 1] = '-' .. ARGV[j]
      args[#args + 1] = ARGV[j]
    end
    new = new + redis.call('ZADD', set, unpack(args))
  end
  return new
end

-- cut removes the ids below the floor, which no read returns, and returns their number.
-- O(log size + cut).
local function cut()
  local floor = redis.call('HGET', meta, 'floor')
  if floor == '0' then
    return 0
  end
  return redis.call('ZREMRANGEBYSCORE', set, '(-' .. floor, '(0')
end

-- sink removes the ids that were pushed below the floor, and counts them. They arrived
-- out of order, after newer ones. The count tells a reader whose ids do not reach down to
-- them that there were some. Call sink before the floor rises: ids that the rising floor
-- passes are not counted. O(log size + cut).
local function sink()
  local sunk = cut()
  if sunk > 0 then
    redis.call('HINCRBY', meta, 'under', sunk)
  end
end

-- raise_floor raises the floor to an id, and never lowers it. O(log size + cut).
local function raise_floor(floor)
  if tonumber(floor) > tonumber(redis.call('HGET', meta, 'floor')) then
    sink()
    redis.call('HSET', meta, 'floor', floor)
    cut()
  end
end

-- trim keeps the newest cap ids when there are more than cap + slack, and returns
-- how many it removed. O(log size + cut).
local function trim(cap, slack)
  local size = redis.call('ZCARD', set)
  if size - 1 <= cap + slack then
    return 0
  end
  sink()
  if redis.call('ZCARD', set) - 1 > cap then
    raise_floor(redis.call('ZRANGE', set, cap - 1, cap - 1)[1])
  end
  return size - redis.call('ZCARD', set)
end

-- settle raises the floor to an id, and further until the feed has at most `keep` ids
-- above `low`. It returns the floor, and how many ids were pushed below it since the feed
-- was begun. O(log size + cut).
local function settle(low, keep, id)
  sink()
  raise_floor(id)
  local beyond = redis.call('ZRANGE', set, keep - 1, keep)
  if beyond[2] and tonumber(beyond[2]) > tonumber(low) then
    raise_floor(beyond[1])
  end
  local have = redis.call('HMGET', meta, 'floor', 'under')
  return { have[1], have[2] or '0' }
end

-- append_journal appends an entry to the journal. The entry is the id of a post that
-- arrived, '-' and the id of a post that was removed, or '=' and the id of a post that
-- the owner of the inbox deleted. The journal is a ring of the newest cap entries. It is
-- in the hash of the coverage, so neither is lost without the other. O(1).
local function append_journal(entry, cap)
  local pos = redis.call('HINCRBY', meta, 'pos', 1)
  redis.call('HSET', meta, 'j' .. pos % cap, entry)
  if pos - cap > tonumber(redis.call('HGET', meta, 'kept') or '0') then
    redis.call('HSET', meta, 'kept', pos - cap)
  end
end

-- read_journal returns the entries after a position that are still kept, oldest first.
-- O(entries).
local function read_journal(since, cap)
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

-- invalidate_positions invalidates all earlier positions in the journal. O(1).
local function invalidate_positions()
  redis.call('HSET', meta, 'kept', redis.call('HINCRBY', meta, 'pos', 1))
end

-- expire gives both keys their life in milliseconds. O(1).
local function expire(metaLife, setLife)
  redis.call('PEXPIRE', meta, metaLife)
  redis.call('PEXPIRE', set, setLife)
end

-- top returns the upper bound of the scores of the ids that are above `after` and not
-- below the floor, for ZRANGEBYSCORE. It excludes the end mark.
local function top(after, floor)
  if tonumber(after) >= tonumber(floor) then
    return after == '0' and '(0' or '(-' .. after
  end
  return '-' .. floor
end
