-- The conditional write: compare, stamp, write, in one step. The rules are those of Expect::holds and Draft::stamp.
--
-- KEYS[1]  the record
-- KEYS[2]  the tenant's index of open records, and KEYS[3] the scope's set of key namespaces; neither in a cluster, where they may
--          live on another node
-- ARGV     1 lease    absent | live | over | any: what must stand
--          2 fence    the revision that must stand, as text, since a double would round what another program wrote
--          3 status
--          4 floor    the lowest new fence; empty keeps the fence that stands
--          5 lease    how long from now, in microseconds; empty leaves the end that stands
--          6 ttl      how long from now, in microseconds
--          7 least    1: a later end that stands is kept
--          8 ends     1: the write ends an attempt
--          9 open     1: the record stands in the index from now on; 0: it does not
--         10 namespace  of the key; empty: none
--         11 stale    how many names of fields follow that the new state does not have; then the new fields, name and value
--
-- Answers {1, now, fence, started_at, lease_until, expires_at} when written, else {0, now, the fields that are there}.
local key = KEYS[1]

-- Lua writes a 16-digit number with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function refuse()
  return {0, digits(now), redis.call('HGETALL', key)}
end

local standing = nil
if redis.call('EXISTS', key) == 1 then
  local seen = redis.call('HMGET', key, 'fence', 'status', 'started_at', 'lease_until', 'expires_at')
  local started_at, lease_until, expires_at = tonumber(seen[3]), tonumber(seen[4]), tonumber(seen[5])
  if not (seen[1] and seen[2] and tonumber(seen[1]) and started_at and lease_until and expires_at) then
    return refuse() -- Not a record. It is never overwritten as if nothing were there; the caller says that it is unreadable.
  end
  if expires_at > now then
    standing = {
      fence = seen[1], status = seen[2], started_at = started_at, lease_until = lease_until, expires_at = expires_at,
    }
  end
end

local lease = ARGV[1]
if lease == 'absent' then
  if standing then return refuse() end
else
  if not standing or standing.fence ~= ARGV[2] or standing.status ~= ARGV[3] then return refuse() end
  if lease == 'live' and now >= standing.lease_until then return refuse() end
  if lease == 'over' and now < standing.lease_until then return refuse() end
end

local fence, started_at
if ARGV[4] == '' then
  fence = standing and standing.fence or '0'
  started_at = standing and standing.started_at or now
else
  fence = digits(math.max(standing and tonumber(standing.fence) + 1 or 0, now, tonumber(ARGV[4])))
  started_at = now
end

local lease_until
if ARGV[5] == '' then
  lease_until = standing and standing.lease_until or now
else
  lease_until = now + tonumber(ARGV[5])
end

local expires_at = now + tonumber(ARGV[6])
if ARGV[7] == '1' and standing then
  expires_at = math.max(expires_at, standing.expires_at)
end

-- HSET goes first: at maxmemory a script is refused at its first write if that may take memory, so nothing is half written.
local stale = tonumber(ARGV[11])
redis.call('HSET', key, 'fence', fence, 'started_at', digits(started_at), 'lease_until', digits(lease_until),
  'expires_at', digits(expires_at), unpack(ARGV, 12 + stale))
if ARGV[8] == '1' then
  redis.call('HSET', key, 'finished_at', digits(now))
else
  redis.call('HDEL', key, 'finished_at')
end
if stale > 0 then
  redis.call('HDEL', key, unpack(ARGV, 12, 11 + stale))
end
-- Rounded up: the field decides the last millisecond, the server only clears away.
redis.call('PEXPIREAT', key, digits(math.ceil(expires_at / 1000)))
-- An index lives as long as the record in it that lives longest.
local function outlives(index)
  local ends = digits(math.ceil(expires_at / 1000))
  redis.call('PEXPIREAT', index, ends, 'NX')
  redis.call('PEXPIREAT', index, ends, 'GT')
end

if KEYS[2] then
  if ARGV[9] == '1' then
    redis.call('ZADD', KEYS[2], digits(lease_until), key)
    outlives(KEYS[2])
  else
    redis.call('ZREM', KEYS[2], key)
  end
  if ARGV[10] ~= '' then
    redis.call('SADD', KEYS[3], ARGV[10])
    outlives(KEYS[3])
  end
end
return {1, digits(now), fence, digits(started_at), digits(lease_until), digits(expires_at)}
