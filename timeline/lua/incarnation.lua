-- Purpose: comes before the scripts that must know which Redis process runs them.
--
-- incarnation identifies the process by its replication id. A redis-server has a new id
-- after every start, also from a snapshot, and after every promotion. Data that was begun
-- under another id may be outdated: a snapshot or a replica that lacked the last writes
-- may have rolled it back, or it came with a slot from another master. A Redis without
-- replication, such as the embedded one, has one incarnation. O(1), some 4 us.
local function incarnation()
  local info = redis.pcall('INFO', 'replication')
  if type(info) == 'table' then
    assert(string.find(info.err, 'not supported', 1, true), info.err)
    return 'only'
  end
  return string.match(info, 'master_replid:(%x+)') or 'only'
end
