-- Purpose: comes before the scripts that must know which Redis process runs them.
--
-- incarnation names the process. A redis-server has another replication id after every
-- start, also from a snapshot, and after every promotion. What was begun under another
-- id may be older than it says: it may have been rolled back, by a snapshot or by a
-- replica that lacked the tail, or have come here with its slot. A Redis without
-- replication, as the one inside the process, has one incarnation. O(1), some 4 us.
local function incarnation()
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'table' then
    assert(string.find(info.err, 'not supported', 1, true), info.err)
    return 'only'
  end
  return string.match(info, 'master_replid:(%x+)') or 'only'
end
